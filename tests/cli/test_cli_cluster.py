"""``tartan cluster`` on matrices in files, and ``Run.cluster``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gaps import Gaps

from tartan.analytics import as_dissimilarities
from tartan.analytics import cluster as cluster_of
from tartan.analytics.clusters.choose import label_clusters
from tartan.analytics.methods import DIVIDING_METHODS
from tartan.errors import ConfigError
from tartan.view.coordinates import read_labels


@pytest.fixture
def matrix(tmp_path):
    """Three groups on a line; names in a CSV file."""
    points = np.repeat([0.0, 10.0, 30.0], 4) + np.tile([0.0, 0.1, 0.2, 0.3], 3)
    names = [f"item{i}" for i in range(12)]
    lines = [",".join(["", *names])]
    lines += [",".join([name, *(f"{abs(x - y):.3f}" for y in points)]) for name, x in zip(names, points)]
    path = tmp_path / "d.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


GROUPS = [0] * 4 + [1] * 4 + [2] * 4


def same_groups(labels: list[int]) -> bool:
    return len(set(zip(labels, GROUPS))) == 3


@pytest.mark.parametrize("method", DIVIDING_METHODS)
def test_labels_of_every_method(command, matrix, method):
    done = command("cluster", matrix, "-k", 3, "--method", method, "--quiet")
    assert done.status == 0
    assert done.err == ""
    head, *table = [line.split("\t") for line in done.out.splitlines()]
    assert head == ["item", "cluster"]
    assert [key for key, _ in table] == [f"item{i}" for i in range(12)]
    assert same_groups([int(label) for _, label in table])


def test_json_with_truth_and_centres(command, matrix, tmp_path):
    truth = tmp_path / "truth.tsv"
    truth.write_text("".join(f"item{i}\tgroup{g}\n" for i, g in enumerate(GROUPS)))
    done = command("cluster", matrix, "-k", 3, "--truth", truth, "--centres", 1, "--json")
    found = json.loads(done.out)
    assert found["scores"]["adjusted_rand"] == 1.0
    assert found["sizes"] == [4, 4, 4]
    assert same_groups(found["labels"])
    assert found["items"] == [f"item{i}" for i in range(12)]
    assert (found["method"], found["n_clusters"]) == ("pwc", 3)
    assert sorted(row[0] for row in found["centres"]["mean"]) == ["item1", "item5", "item9"]
    assert "adjusted rand: 1.0000" in done.err


def test_names_of_several_items_are_told_by_place(command, matrix):
    matrix.write_text(matrix.read_text().replace("item7", "item3"))
    done = command("cluster", matrix, "-k", 3, "--method", "single", "--json")
    found = json.loads(done.out)
    assert found["items"].count("item3") == 2
    assert found["labels"] == GROUPS


@pytest.mark.slow
def test_without_a_number_one_is_found(command, matrix, tmp_path):
    done = command("cluster", matrix, "--json", "--curve", tmp_path / "c.svg")
    found = json.loads(done.out)
    assert found["n_clusters"] == 3
    assert same_groups(found["labels"])
    assert found["curve"]["clusters"] == list(range(2, 12))
    above = [a - b for a, b in zip(found["curve"]["mean_silhouette"], found["curve"]["by_chance"])]
    assert above.index(max(above)) == 1
    assert max(above) > found["curve"]["margin"]
    assert found["curve_picture"] == str(tmp_path / "c.svg")
    assert "d: 3 clusters" in (tmp_path / "c.svg").read_text()
    assert "of the numbers 2 to 11, 3 fits best (mean silhouette " in done.err


@pytest.mark.slow
def test_the_command_and_the_function_agree(command, matrix):
    for words, options in (
        ([], {}),
        (["--method", "average"], {"method": "average"}),
        (["--threshold", "5"], {"threshold": 5.0}),
        (["--method", "hdbscan", "--min-size", "3"], {"method": "hdbscan", "min_size": 3}),
    ):
        found = json.loads(command("cluster", matrix, *words, "--json", "--quiet").out)
        expected = cluster_of(str(matrix), **options)
        assert found["labels"] == expected.labels.tolist()
        assert (found["method"], found["reason"]) == (expected.method, expected.reason)


def test_labels_in_a_file_and_truth_by_position(command, matrix, tmp_path):
    truth = tmp_path / "truth.txt"
    truth.write_text("\n".join(map(str, GROUPS)))
    done = command("cluster", matrix, "-k", 3, "--truth", truth, "-o", tmp_path / "labels.tsv", "--quiet")
    assert done.out == ""
    assert (tmp_path / "labels.tsv").read_text().startswith("item\tcluster\nitem0\t")
    assert len(set(read_labels(tmp_path / "labels.tsv", [f"item{i}" for i in range(4)]))) == 1


def test_labels_that_it_wrote_are_a_truth(command, matrix, tmp_path):
    written = tmp_path / "labels.tsv"
    command("cluster", matrix, "-k", 3, "--method", "single", "-o", written)
    done = command("cluster", matrix, "-k", 3, "--truth", written, "--json")
    assert json.loads(done.out)["scores"]["adjusted_rand"] == 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-k 2 --method single --checkpoint c.npz", "--checkpoint is for --method pwc"),
        ("-k 2 --method single --memory 1GB", "--memory is for linkages that keep rows; --method single keeps none"),
        ("-k 2 --method average --memory 5items", "memory: 5items counts items"),
        ("--threshold 1 --checkpoint c.npz", "--checkpoint is for --method pwc"),
        ("-k 2 --centres 3", "add --json"),
        ("--threshold 1 --method pwc", "takes a number of clusters"),
        ("-k 2 --truth none.tsv", "there is no file none.tsv"),
        ("-k 2 --seed -1", "'-1' is not a whole number"),
        ("-k 2 --min-size 3", "--min-size is for --method hdbscan"),
        ("-k 2 --curve c.svg", "--curve draws how a number of clusters was chosen"),
        ("--threshold 1 --curve c.svg", "none is chosen here"),
        ("--curve c.pdf", "pictures of curves are .svg or .png"),
        ("-k 2 --method leiden", "leiden is for runs that keep pairs"),
    ],
)
def test_options_that_would_be_left_unheard(command, matrix, words, said):
    done = command("cluster", matrix, *words.split())
    assert (done.status, done.out) == (2, "")
    assert said in done.err


def test_truth_that_is_no_text(command, matrix, tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    done = command("cluster", matrix, "-k", 3, "--truth", tmp_path / "bytes")
    assert done.status == 2
    assert "bytes is not text in UTF-8" in done.err


def test_truth_without_some_items(command, matrix, tmp_path):
    truth = tmp_path / "truth.tsv"
    truth.write_text("item0\t0\n")
    done = command("cluster", matrix, "-k", 3, "--truth", truth)
    assert done.status == 2
    assert "no label for 'item1' and 10 more" in done.err


def test_more_clusters_than_items(command, matrix):
    for method in ("pwc", "average"):
        done = command("cluster", matrix, "-k", 13, "--method", method, "--quiet")
        assert done.status == 2
        assert "13 clusters of 12 items" in done.err


def test_wrong_method_and_options():
    D = as_dissimilarities(1 - np.eye(3))
    with pytest.raises(ConfigError, match="'median' is unknown"):
        label_clusters(D, 2, "median")
    with pytest.raises(ConfigError, match="no option random_state"):
        label_clusters(D, 2, "average", random_state=0)


def test_cut_of_a_hierarchy_gives_any_number_of_clusters():
    points = np.array([0.0, 1.0, 5.0, 6.0, 20.0])
    D = np.abs(points[:, None] - points)
    assert label_clusters(D, 1, "single").tolist() == [0, 0, 0, 0, 0]
    assert label_clusters(D, 2, "single").tolist() == [0, 0, 0, 0, 1]
    assert label_clusters(D, 3, "complete").tolist() == [0, 0, 1, 1, 2]
    assert label_clusters(D, 5, "average").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_of_a_run(tmp_path):
    import tartan

    points = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 9.2]
    run = tartan.allpairs(Gaps(), points, tmp_path / "run", workers=1)
    labels = run.cluster(2, random_state=0)
    assert len(set(labels[:4].tolist())) == len(set(labels[4:].tolist())) == 1
    assert labels[0] != labels[4]
    assert (run.cluster(2, "single") == [0, 0, 0, 0, 1, 1, 1]).all()


def test_a_picture_is_written_and_others_are_refused_first(command, matrix, tmp_path):
    words = ("cluster", matrix, "-k", 3, "--method", "average")
    done = command(*words, "--picture", tmp_path / "c.png", "--json")
    assert json.loads(done.out)["picture"] == str(tmp_path / "c.png")
    assert f"picture in {tmp_path / 'c.png'}" in done.err
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    for more, said in (
        (["--picture", tmp_path / "c.jpg"], "pictures of matrices are .png"),
        (["--picture", tmp_path / "no" / "c.png"], "there is no folder"),
        (["--map", tmp_path / "m.gif"], "maps are drawn as .png, .svg or .html"),
        (["--map", tmp_path / "m.png"], f"keeps no map; for a run `tartan embed {matrix}` makes one"),
    ):
        done = command(*words, *more)
        assert (done.status, done.out) == (2, "")
        assert said in done.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_the_map_of_a_run_in_the_colours_of_its_clusters(command, tmp_path, kind):
    import tartan

    points = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 9.2]
    tartan.allpairs(Gaps(), points, tmp_path / "run", workers=1).embed("smacof", 1, keep=True)
    target = tmp_path / f"m.{kind}"
    done = command("cluster", tmp_path / "run", "-k", 2, "--method", "single", "--map", target, "--quiet")
    assert done.status == 0
    if kind == "svg":
        text = target.read_text()
        assert text.count("<title>") == 7
        assert "0 (4)" in text
        assert "1 (3)" in text
    elif kind == "html":
        assert '"clusters":[{"label":"0","colour":[0,114,178,255]' in target.read_text()
    else:
        assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_run_that_keeps_pairs(command, tmp_path):
    import tartan

    points = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 50.0]
    near = {"kind": "threshold", "threshold": 0.15}
    run = tartan.allpairs(Gaps(), points, tmp_path / "run", reduce=near, workers=1)
    done = command("cluster", run.path)
    assert done.out.splitlines()[0] == "item\tcluster\trepresentative"
    assert [line.split("\t")[1:] for line in done.out.splitlines()[1:]] == [
        *([["0", "1"]] * 4), *([["1", "4"]] * 2), ["2", "6"],
    ]  # fmt: skip
    assert "2 groups of two or more items, 1 item alone" in done.err
    found = json.loads(command("cluster", run.path, "--json", "--quiet").out)
    assert found["labels"] == [0, 0, 0, 0, 1, 1, 2] == cluster_of(run).labels.tolist()
    assert found["representatives"] == ["1", "4", "6"]
    command("cluster", run.path, "-o", tmp_path / "groups.tsv", "--quiet")
    assert read_labels(tmp_path / "groups.tsv", run.keys) == ["0", "0", "0", "0", "1", "1", "2"]
    drawn = command("embed", run.path, "--dim", 2, "--labels", tmp_path / "groups.tsv", "-o", tmp_path / "map")
    assert drawn.status == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "nan" in (tmp_path / "map.tsv").read_text().splitlines()[-1]
    assert run.map is None
    refused = command("embed", run.path, "--density", tmp_path / "d.png")
    assert (refused.status, refused.out) == (2, "")
    assert "--density needs the matrix" in refused.err
    for words, said in (
        (["--picture", tmp_path / "c.png"], "--picture needs the matrix"),
        (["--curve", tmp_path / "c.png"], "none is chosen here"),
        (["--method", "average"], "average needs all pairs"),
        (["-k", 2], "2 clusters: 7 items in 3 unconnected parts make 3 to 7 clusters"),
    ):
        done = command("cluster", run.path, *words)
        assert (done.status, done.out) == (2, "")
        assert said in done.err
