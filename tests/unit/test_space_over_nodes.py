"""What acts inside one node is not searched over several."""

from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.space.build import plan
from collbench.space.spec import load_spec

HOSTS = Path(__file__).parents[1] / "data" / "sweeps" / "hosts.toml"


def test_an_axis_inside_one_node_is_left_out_over_two_and_said(tmp_path: Path) -> None:
    text = HOSTS.read_text() + '\n[[axis]]\nknob = "OMPI_MCA_btl_sm_fbox_size"\nvalues = [16384]\n'
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    spec = load_spec(str(path))
    one, two = plan(spec), plan(spec, nodes=2)
    assert "OMPI_MCA_btl_sm_fbox_size" in {axis.name for axis in one.space.axes}
    assert {axis.name for axis in two.space.axes} == {
        "OMPI_MCA_btl_tcp_eager_limit",
        "OMPI_MCA_btl_tcp_links",
        "OMPI_MCA_coll_han_priority",
    }
    assert [note for note in two.notes if "OMPI_MCA_btl_sm_fbox_size acts inside one node" in note]


def test_a_sweep_of_one_node_alone_is_refused_over_two(tmp_path: Path) -> None:
    spec = load_spec(str(HOSTS.with_name("tiny.toml")))
    with pytest.raises(CollbenchError, match="acts inside one node"):
        plan(spec, nodes=2)
