"""What is emitted is read back by every target's own rules to the same map."""

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from collbench.emit import RAY_COPY, TARGETS, render
from collbench.errors import CollbenchError
from collbench.knobs import registry
from collbench.profiles import Profile, Scope, sealed
from collbench.profiles.env_file import env_text
from collbench.profiles.store import Reference
from collbench.readers.env_files import READERS, read_with

MARKED = ("COLLBENCH_PROFILE", "SPT_NOENV")


def reference(settings: dict[str, str], **fields: Any) -> Reference:
    profile = sealed(Profile(settings=settings, scope=Scope(nranks=4), **fields))
    marks = {"COLLBENCH_PROFILE": profile.id, "SPT_NOENV": "1"}
    values = {**settings, **profile.pinned, **marks}
    return Reference(path=Path("/etc/collbench/current"), values=values, profile=profile)


def undoubled(text: str, sign: str) -> str:
    """Take each pair of a sign for one; a single one would be expanded by the target."""
    assert sign not in text.replace(sign * 2, ""), text
    return text.replace(sign * 2, sign)


def read_back(target: str, text: str) -> dict[str, str]:
    """The variables a server would see, by the rules of what starts it."""
    if target in ("env", "nccl-conf"):
        read = read_with("nccl_conf" if target == "nccl-conf" else "docker", text)
    elif target == "shell":
        read = read_with("sh", text)
    elif target == "slurm":
        lines = [line for line in text.splitlines() if line.startswith("export ")]
        read = read_with("sh", "\n".join(lines))
    elif target == "docker":
        command = text[text.index("docker run") :].partition("\n#")[0].replace("\\\n", "")
        words = shlex.split(command)
        pairs = [words[i + 1] for i, word in enumerate(words) if word == "-e"]
        return dict(pair.split("=", 1) for pair in pairs)
    elif target == "compose":
        service = yaml.safe_load(text)["services"]["server"]
        return {n: undoubled(v, "$") for n, v in service["environment"].items()}
    elif target == "k8s":
        return dict(next(yaml.safe_load_all(text))["data"])
    else:
        lines = re.findall(r"^Environment=\"(.*)\"$", text, re.MULTILINE)
        unquoted = [re.sub(r"\\(.)", r"\1", undoubled(line, "%")) for line in lines]
        return dict(line.split("=", 1) for line in unquoted)
    assert isinstance(read, dict)
    return {name: value for name, value in read.items() if value is not None}


TUNING = sorted(set(registry()) - set(MARKED))
ANY_TEXT = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=40)
PRINTED = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.isprintable)
PLAIN = st.from_regex(r"\A[A-Za-z0-9_.,:/+@%^-]{1,30}\Z")


@budget(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(TUNING), PLAIN, min_size=1, max_size=8))
def test_the_universal_file_means_the_same_to_every_reader(settings: dict[str, str]) -> None:
    ref = reference(settings)
    assert ref.profile is not None
    text = env_text(ref.profile)
    for reader in READERS:
        assert read_with(reader, text) == ref.values, reader


@pytest.mark.parametrize("name", TUNING)
def test_every_registered_value_can_be_emitted(name: str) -> None:
    for value in registry()[name].candidates:
        ref = reference({name: value})
        for target in TARGETS:
            if target == "nccl-conf" and not name.startswith("NCCL_"):
                continue
            assert render(target, ref), target


@pytest.mark.parametrize("target", ["compose", "k8s"])
@budget(max_examples=50, deadline=None)
@given(value=PRINTED)
def test_letters_of_every_language_arrive_through_yaml(target: str, value: str) -> None:
    ref = reference({"NCCL_ALGO": f"\U0001f600{value}"})
    assert read_back(target, render(target, ref)) == ref.values


@pytest.mark.parametrize("target", ["shell", "docker", "compose", "k8s", "systemd", "slurm"])
@budget(max_examples=25, deadline=None)
@given(values=st.dictionaries(st.sampled_from(TUNING), ANY_TEXT, min_size=1, max_size=5))
def test_values_the_universal_file_cannot_hold_arrive_by_the_others(
    target: str, values: dict[str, str]
) -> None:
    values = {**values, "NCCL_ALGO": "allreduce:ring;allgather:ring"}
    ref = reference(values)
    assert read_back(target, render(target, ref)) == ref.values


@budget(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from([n for n in TUNING if n.startswith("NCCL_")]), ANY_TEXT))
def test_nccl_conf_carries_them_too(values: dict[str, str]) -> None:
    values = {**values, "NCCL_ALGO": "allreduce:ring;allgather:ring"}
    assert read_back("nccl-conf", render("nccl-conf", reference(values))) == values


def test_the_universal_target_refuses_them_and_names_those_that_can() -> None:
    with pytest.raises(CollbenchError, match="NCCL_ALGO") as caught:
        render("env", reference({"NCCL_ALGO": "allreduce:ring;allgather:ring"}))
    for target in ("docker", "systemd", "k8s", "nccl-conf"):
        assert target in caught.value.fix


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a\x1b[31m", "\u202ex"])
def test_control_characters_fit_no_target(value: str) -> None:
    for target in TARGETS:
        with pytest.raises(CollbenchError, match="control characters"):
            render(target, reference({"NCCL_PROTO": value}))


def test_snippets_name_the_stable_path_and_the_guard() -> None:
    ref = reference({"NCCL_MIN_NCHANNELS": "16"})
    path = "/etc/collbench/current/profile.env"
    unit = render("systemd", ref, service="sglang")
    assert f"\nEnvironmentFile={path}\n" in unit
    assert "sglang.service.d" in unit
    for target in ("systemd", "compose", "docker", "slurm", "k8s"):
        text = render(target, ref)
        assert re.search(r"collbench\W+verify\W.*--wait\W", text, re.DOTALL), target
        assert "\n\n\n" not in text
    compose = yaml.safe_load(render("compose", ref))
    assert compose["services"]["server"]["env_file"] == [path]
    documents = list(yaml.safe_load_all(render("k8s", ref)))
    container = documents[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"][0]["configMapRef"]["name"] == documents[0]["metadata"]["name"]
    assert "--ranks 4" in render("k8s", ref)
    assert f"set -a; . {path}; set +a" in render("slurm", ref)


@pytest.mark.parametrize("service", ["a b", "x;rm -rf /", "$(x)", "", "-x", "a\nb"])
def test_a_service_name_that_could_be_code_is_refused(service: str) -> None:
    with pytest.raises(CollbenchError, match="--service"):
        render("docker", reference({"NCCL_PROTO": "LL"}), service=service)


@pytest.mark.parametrize("service", ["yes", "null", "1e3x", "0x1f", "On", "server-1", "1_0a"])
def test_a_name_is_a_name_to_yaml_too(service: str) -> None:
    ref = reference({"NCCL_PROTO": "LL"})
    services = yaml.safe_load(render("compose", ref, service=service))["services"]
    assert set(services) == {service, "profile-guard"}
    assert services["profile-guard"]["depends_on"] == [service]
    if service.islower() and "_" not in service:
        deployment = list(yaml.safe_load_all(render("k8s", ref, service=service)))[1]
        assert deployment["metadata"]["name"] == service
        assert deployment["spec"]["selector"]["matchLabels"] == {"app": service}


@pytest.mark.parametrize(
    ("target", "service"),
    [
        *(("k8s", name) for name in ("Server", "a_b", "a.b", "a-", "12")),
        *(("compose", name) for name in ("12", "profile-guard", "a@b")),
        *(("docker", name) for name in ("a", "a@b")),
    ],
)
def test_a_name_that_the_target_would_refuse_is_refused_here(target: str, service: str) -> None:
    with pytest.raises(CollbenchError, match=f"--service.*{target}"):
        render(target, reference({"NCCL_PROTO": "LL"}), service=service)


@pytest.mark.parametrize("path", ["relative.env", "/a:b", "/a b", "/a;b", "/$HOME/x", "/a\nb"])
def test_a_path_that_could_be_code_is_refused(path: str) -> None:
    with pytest.raises(CollbenchError, match="--env-path"):
        render("slurm", reference({"NCCL_PROTO": "LL"}), env_path=path)


def test_a_folder_with_a_blank_only_stops_targets_that_name_it() -> None:
    ref = dataclasses.replace(reference({"NCCL_PROTO": "LL"}), path=Path("/home/me/My results/x"))
    for target in TARGETS:
        if target in ("env", "shell", "nccl-conf", "k8s"):
            wanted = '  NCCL_PROTO: "LL"' if target == "k8s" else "NCCL_PROTO=LL"
            assert f"{wanted}\n" in render(target, ref)
            assert "My results" not in render(target, ref)
        else:
            with pytest.raises(CollbenchError, match="--env-path"):
                render(target, ref)


def test_a_per_cent_sign_of_a_path_is_no_specifier_of_systemd() -> None:
    unit = render("systemd", reference({"NCCL_PROTO": "LL"}), env_path="/srv/a%h/profile.env")
    assert "\nEnvironmentFile=/srv/a%%h/profile.env\n" in unit
    assert "collbench verify /srv/a%%h --pid" in unit


def test_ray_is_told_what_its_prefixes_do_not_cover() -> None:
    ref = reference({"NCCL_PROTO": "LL", "OMP_NUM_THREADS": "8"})
    text = render("env", ref, ray=True)
    assert f"{RAY_COPY}=OMP_NUM_THREADS,COLLBENCH_PROFILE,SPT_NOENV\n" in text


def test_files_that_settings_name_are_mounted() -> None:
    ref = reference({"NCCL_GRAPH_FILE": "/etc/graph.xml"}, hazards=("loads-code",))
    assert "-v /etc/graph.xml:/etc/graph.xml:ro" in render("docker", ref)
    volumes = yaml.safe_load(render("compose", ref))["services"]["server"]["volumes"]
    assert volumes == ["/etc/graph.xml:/etc/graph.xml:ro"]


def test_nccl_conf_takes_no_variables_of_others_and_no_comments_of_newer_versions() -> None:
    with pytest.raises(CollbenchError, match="OMPI_MCA_btl"):
        render("nccl-conf", reference({"OMPI_MCA_btl": "self,sm"}))
    old = reference({"NCCL_PROTO": "LL"}, machine={"library": "NCCL 2.24.3"})
    assert render("nccl-conf", old) == "NCCL_PROTO=LL\n"


def test_a_json_string_is_a_yaml_scalar() -> None:
    for text in ("a: b", "# x", "yes", "1e3", "{a}", "\\", '"', "'"):
        assert yaml.safe_load(json.dumps(text)) == text
