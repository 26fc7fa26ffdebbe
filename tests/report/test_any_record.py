"""Whatever numbers stand in a record that loads, its page can be written."""

import json
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from collbench.job import Case, CaseTimes, Choice, PairTimes, RankFacts, Run, StepTimes
from collbench.machine import Fingerprint, Gpu
from collbench.report.build import compared, single
from collbench.report.page import html
from collbench.report.sources import arms_of
from collbench.report.story import Ablated, FrontPoint, Guarded, Story, Trial

any_float = st.one_of(
    st.floats(0.1, 1e6), st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1e300, 1e-300])
)
words = st.text(max_size=8)
times = st.lists(st.lists(any_float, max_size=3), max_size=3)
few = {"max_size": 3}
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


@st.composite
def runs(draw: Any) -> Run:
    cases = st.builds(
        CaseTimes,
        case=st.builds(
            Case,
            collective=st.sampled_from(["all_reduce", "all_gather", "other"]),
            size_bytes=st.integers(1, 1 << 34),
            dtype=st.sampled_from(["bfloat16", "x"]),
            mode=st.sampled_from(["graph", "eager", "entry"]),
        ),
        times_us=times,
        enqueue_us=st.none() | st.lists(any_float, **few),
        error=st.none() | words,
    )
    return Run(
        job_id="1",
        settings=draw(st.dictionaries(st.sampled_from(["A", "B"]), words, **few)),
        outcome=draw(st.sampled_from(["ok", "ok", "ok", "hung", "died"])),
        reason=draw(words),
        cases=tuple(draw(st.lists(cases, **few))),
        step=draw(st.none() | st.builds(StepTimes, total_us=times, nocomm_us=times)),
        pairs=tuple(
            draw(
                st.lists(
                    st.builds(
                        PairTimes,
                        src=st.integers(0, 3),
                        dst=st.integers(0, 3),
                        latency_us=any_float,
                        bandwidth_gbs=any_float,
                    ),
                    **few,
                )
            )
        ),
        ranks=tuple(
            draw(
                st.lists(
                    st.builds(
                        RankFacts,
                        rank=st.integers(0, 3),
                        pid=st.just(1),
                        host=words,
                        device=words,
                        memory_bytes=st.none() | st.integers(0, 1 << 50),
                    ),
                    **few,
                )
            )
        ),
        choices=tuple(
            draw(
                st.lists(
                    st.builds(
                        Choice,
                        collective=st.none() | words,
                        size_bytes=st.integers(0, 1 << 40),
                        algorithm=words,
                        protocol=words,
                        channels=words,
                    ),
                    **few,
                )
            )
        ),
    )


gpus = st.builds(
    Gpu,
    index=st.integers(0, 9),
    name=words,
    pci=st.none() | words,
    numa_node=st.none() | st.integers(-1, 3),
    link_gen_max=st.none() | st.integers(0, 9),
    link_width_max=st.none() | st.integers(0, 64),
)
trials = st.builds(
    Trial,
    number=st.integers(0, 99),
    stage=st.sampled_from(["aa", "search", "confirm"]),
    settings=st.dictionaries(st.sampled_from(["A", "B"]), words, **few),
    outcome=st.sampled_from(["ok", "hung"]),
    value_us=st.none() | any_float,
    default_us=st.none() | any_float,
)
pair = st.none() | st.tuples(any_float, any_float)
document = st.fixed_dictionaries(
    {"verdict": st.sampled_from(["profile", "keep_default"])},
    optional={
        **dict.fromkeys(("default_us", "winner_us", "ratio", "noise_pct"), st.none() | any_float),
        **dict.fromkeys(("default_exposed_us", "winner_exposed_us"), st.none() | any_float),
        "interval": pair,
        "trials": st.integers(0, 99),
    },
)


@st.composite
def stories(draw: Any) -> Story:
    found = draw(st.lists(runs(), max_size=4))
    wanted = draw(st.sampled_from([run.settings for run in found] or [{}]))
    return Story(
        title=draw(words),
        path=draw(words),
        kind="run",
        backend=draw(st.sampled_from(["nccl", "mpi", ""])),
        nranks=draw(st.integers(0, 4)),
        machine=draw(st.none() | st.builds(Fingerprint, gpus=st.lists(gpus, max_size=9))),
        settings=wanted,
        document=draw(st.just({}) | document),
        arms=arms_of(found, wanted),
        paired=draw(st.booleans()),
        trials=draw(st.lists(trials, max_size=6)),
        importance=draw(st.dictionaries(words, st.floats(0, 1), **few)),
        ablation=draw(
            st.lists(
                st.builds(
                    Ablated,
                    setting=words,
                    ratio=st.none() | any_float,
                    interval=pair,
                    kept=st.booleans(),
                ),
                **few,
            )
        ),
        guards=draw(
            st.lists(
                st.builds(Guarded, case=words, ratio=any_float, verdict=words, pairs=st.just(14)),
                **few,
            )
        ),
        front=draw(
            st.lists(
                st.builds(
                    FrontPoint,
                    settings=st.dictionaries(words, words, **few),
                    decode_ratio=any_float,
                    prefill_ratio=any_float,
                    knee=st.booleans(),
                ),
                **few,
            )
        ),
    )


@given(stories())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
def test_any_story_becomes_a_page(story: Story) -> None:
    text = html(single(story), plotly_js="")
    data = text.split('id="data">')[1].split("</script>")[0]
    json.loads(data, parse_constant=lambda name: pytest_fail(name))


@given(stories(), stories())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
def test_any_two_stories_can_be_compared(first: Story, second: Story) -> None:
    assert html(compared(first, second), plotly_js="")


def pytest_fail(name: str) -> None:
    raise AssertionError(f"{name} in the page's JSON")
