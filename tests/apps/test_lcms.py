"""LC-MS peaks: files, modes, comparison with references, the simulator, the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.apps import lcms
from tartan.apps.lcms.simulate import simulate
from tartan.cli.main import main
from tartan.errors import ConfigError

FAST: dict[str, Any] = {"cooling": (0.9, 0.98), "cooling_below": (0.95, 0.995)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lcms")
    simulate(path, 1500, 3, others=70)
    return path


@pytest.fixture(scope="module")
def peaks(folder: Path) -> lcms.Peaks:
    return lcms.read_peaks(folder / "peaks.txt")


@pytest.fixture(scope="module")
def truth(folder: Path) -> np.ndarray:
    return np.array(json.loads((folder / "truth.json").read_text())["labels"])


@pytest.fixture(scope="module")
def fresh(peaks: lcms.Peaks) -> lcms.LcmsClusters:
    return lcms.cluster_peaks(peaks, **FAST)


def written(folder: Path, peaks: lcms.Peaks, found: lcms.LcmsClusters) -> lcms.Earlier:
    return lcms.read_clusters(lcms.write_clusters(folder, "c", peaks, found.labels, found.centers, 99))


class TestSimulator:
    def test_has_the_truth_of_its_charge(self, peaks: lcms.Peaks, truth: np.ndarray) -> None:
        assert len(peaks.points) == len(truth) == 1500
        assert (truth < 0).sum() == 150
        assert (peaks.references["mclust"] == 0).sum() == (peaks.references["medea"] == 0).sum() == 150
        golden = peaks.references["golden"]
        assert set(golden[golden >= 0]) <= set(truth)
        np.testing.assert_array_equal(golden[golden >= 0], truth[golden >= 0])
        assert 0 < (golden >= 0).sum() < 500

    def test_references_are_spoilt_as_they_say(self, peaks: lcms.Peaks, truth: np.ndarray) -> None:
        real = truth >= 0
        divided = lcms.compare(peaks.references["mclust"][real], truth[real])
        merged = lcms.compare(peaks.references["medea"][real], truth[real])
        assert divided.precision == 1 > divided.recall > 0.85
        assert merged.recall == 1 > merged.precision > 0.75

    def test_charges_are_told_apart(self, folder: Path) -> None:
        assert len(lcms.read_peaks(folder / "peaks.txt", 3).points) == 70
        assert len(lcms.read_peaks(folder / "peaks.txt", -2).points) == 70
        assert len(lcms.read_peaks(folder / "peaks.txt", None).points) == 1570
        with pytest.raises(ConfigError, match="no peaks of charge 5"):
            lcms.read_peaks(folder / "peaks.txt", 5)

    def test_the_same_arguments_give_the_same_files(self, folder: Path, tmp_path: Path) -> None:
        simulate(tmp_path, 1500, 3, others=70)
        assert (tmp_path / "peaks.txt").read_bytes() == (folder / "peaks.txt").read_bytes()
        simulate(tmp_path, 1, 0, noise=0.0)
        assert len(lcms.read_peaks(tmp_path / "peaks.txt").points) == 1

    @pytest.mark.parametrize(("option", "value"), [("noise", 1.0), ("sigma_mz", -1.0), ("charge", 0), ("sigma_rt", -1)])
    def test_refuses_wrong_options(self, option: str, value: float, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=f"{option}: {value}"):
            simulate(tmp_path, 10, 0, **{option: value})


class TestFiles:
    LINE = "0 500.25 20.5 2 PEP1 1 4 5 7"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("0 500.25 20.5 2 PEP1 1 4 5", "line 3: 8 columns separated by white space; there must be the 9"),
            ("0,500.25,20.5,2", "line 3: 1 columns separated by white space"),
            ("0 0 20.5 2 PEP1 1 4 5 7", r"column 2 \(m/z\): '0' must be a positive number"),
            ("99999999999999999999 500.25 20.5 2 PEP1 1 4 5 7", r"column 1 \(index\): '9+' must be a whole number"),
            ("index m/z RT charge", r"line 3, column 1 \(index\): 'index' must be a whole number"),
            ("0 m/z 20.5 2 PEP1 1 4 5 7", r"line 3, column 2 \(m/z\): 'm/z' must be a positive number"),
            ("0 -4.0 20.5 2 PEP1 1 4 5 7", r"column 2 \(m/z\): '-4.0'"),
            ("0 500.25 nan 2 PEP1 1 4 5 7", r"column 3 \(RT\): 'nan' must be a finite number"),
            ("0 500.25 20.5 2+ PEP1 1 4 5 7", r"column 4 \(charge\): '2\+' must be a whole number"),
            ("0 500.25 20.5 2 PEP1 1 4 5 x", r"column 9 \(experiment\): 'x'"),
        ],
    )
    def test_malformed_lines_are_named(self, line: str, message: str, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_text(f"{self.LINE}\n\n{line}\n")
        with pytest.raises(ConfigError, match=message):
            lcms.read_peaks(tmp_path / "peaks.txt")

    def test_what_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_bytes(b"\xff\xfe\x00")
        for name in ("peaks.txt", "missing.txt"):
            with pytest.raises(ConfigError, match="cannot be read"):
                lcms.read_peaks(tmp_path / name)

    def test_columns_go_where_they_belong(self, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_text(self.LINE + "\n")
        one = lcms.read_peaks(tmp_path / "peaks.txt")
        assert one.points.tolist() == [[500.25, 20.5]]
        assert one.peptides == ("PEP1",)
        assert {name: values.tolist() for name, values in one.references.items()} == {
            "golden": [1], "mclust": [4], "medea": [5],
        }  # fmt: skip
        assert one.experiment.tolist() == [7]

    @pytest.mark.parametrize("form", ["gzip", "CRLF", "header", "byte order mark"])
    def test_texts_come_in_many_forms(self, form: str, tmp_path: Path) -> None:
        text = f"{self.LINE}\n{self.LINE}\n".encode()
        text = {
            "gzip": gzip.compress(text),
            "CRLF": text.replace(b"\n", b"\r\n"),
            "header": b"index m/z RT charge peptide peptideId mclust medea experiment#\n" + text,
            "byte order mark": b"\xef\xbb\xbf" + text,
        }[form]
        (tmp_path / "peaks.txt").write_bytes(text)
        found = lcms.read_peaks(tmp_path / "peaks.txt")
        assert found.points.tolist() == [[500.25, 20.5]] * 2
        if form == "gzip":
            (tmp_path / "peaks.txt").write_bytes(text[:-9])
            with pytest.raises(ConfigError, match="cannot be read"):
                lcms.read_peaks(tmp_path / "peaks.txt")

    def test_four_columns_are_enough(self, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_text("0 500.25 20.5 2\n")
        one = lcms.read_peaks(tmp_path / "peaks.txt")
        assert one.points.tolist() == [[500.25, 20.5]]
        assert {name: values.tolist() for name, values in one.references.items()} == {
            "golden": [-1], "mclust": [0], "medea": [0],
        }  # fmt: skip

    def test_a_file_without_peaks_says_what_it_has(self, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_text("")
        with pytest.raises(ConfigError, match=r"there are no peaks$"):
            lcms.read_peaks(tmp_path / "peaks.txt")
        (tmp_path / "peaks.txt").write_text("0 500.25 20.5 3\n1 500.25 20.5 4\n")
        with pytest.raises(ConfigError, match="no peaks of charge 2; there are those of 3, 4"):
            lcms.read_peaks(tmp_path / "peaks.txt")

    def test_a_folder_is_its_last_result(self, tmp_path: Path) -> None:
        lcms.write_table(tmp_path / "peaks.tsv", {"index": [7, 9], "mz": [1.5, 2], "rt": [3, 4], "cluster": [-1, 0]})
        lcms.write_table(tmp_path / "clusters.tsv", {"cluster": [0], "mz": [2.25], "rt": [4.5]})
        found = lcms.read_clusters(tmp_path)
        assert (found.index.tolist(), found.labels.tolist()) == ([7, 9], [-1, 0])
        assert (found.points.tolist(), found.centers.tolist()) == ([[1.5, 3], [2, 4]], [[2.25, 4.5]])
        lcms.write_table(tmp_path / "clusters.tsv", {"cluster": [], "mz": [], "rt": []})
        with pytest.raises(ConfigError, match="clusters up to 1 and 0 centres"):
            lcms.read_clusters(tmp_path)
        (tmp_path / "clusters.tsv").unlink()
        with pytest.raises(ConfigError, match=r"no result of tartan lcms cluster.*clusters\.tsv"):
            lcms.read_clusters(tmp_path)

    def test_peaks_are_told_by_their_index(self, tmp_path: Path) -> None:
        (tmp_path / "peaks.txt").write_text("5 1.0 1.0 2\n3 1.0 1.0 2\n9 1.0 1.0 2\n")
        peaks = lcms.read_peaks(tmp_path / "peaks.txt")
        nothing = np.empty((0, 2))
        earlier = lcms.Earlier(np.array([9, 4, 5]), nothing, np.array([1, 2, 3]), nothing)
        assert lcms.labels_of(peaks, earlier).tolist() == [3, -1, 1]
        with pytest.raises(ConfigError, match="index 9 stands 2 times in the earlier result"):
            lcms.labels_of(peaks, lcms.Earlier(np.array([9, 4, 9]), nothing, np.array([1, 2, 3]), nothing))

    @pytest.mark.slow
    def test_clusters_come_back(self, peaks: lcms.Peaks, fresh: lcms.LcmsClusters, tmp_path: Path) -> None:
        back = written(tmp_path, peaks, fresh)
        np.testing.assert_array_equal(back.labels, fresh.labels)
        np.testing.assert_array_equal(back.centers, fresh.centers)
        np.testing.assert_array_equal(back.points, peaks.points)
        (file,) = tmp_path.iterdir()
        assert file.name == f"c-M99-C{len(fresh.centers)}.txt"
        lines = [line.split("\t") for line in file.read_text().splitlines()]
        assert {line[4] for line in lines[len(peaks.points) :]} == {"100000000"}
        assert lines[0][3] == "0.0"

    @pytest.mark.parametrize("text", ["1 2.0 3.0", "1 a 3.0 0.0 0", "0 1.0 1.0 0.0 3", "0 nan 1.0 0.0 0"])
    def test_what_is_no_clustering_is_refused(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "c.txt").write_text(text + "\n")
        with pytest.raises(ConfigError, match=r"c\.txt"):
            lcms.read_clusters(tmp_path / "c.txt")


class TestCompare:
    def test_counts_best_matches_and_pairs(self) -> None:
        #                                0  0  0  0  1  1  2  -1
        result = lcms.compare(np.array([5, 5, 6, -1, 6, 6, -1, 5]), np.array([0, 0, 0, 0, 1, 1, 2, -1]))
        assert result.reference_sizes.tolist() == [4, 2, 1]
        assert result.reference_fractions.tolist() == [0.5, 1.0, 0.0]
        assert result.found_sizes.tolist() == [2, 3]
        assert result.found_fractions.tolist() == [1.0, pytest.approx(2 / 3)]
        assert result.precision == pytest.approx(2 / 4)
        assert result.recall == pytest.approx(2 / 7)
        assert result.summary()["reference_in_best"] == pytest.approx(4 / 7)

    def test_nothing_in_common(self) -> None:
        result = lcms.compare(np.array([-1, -1]), np.array([-1, -1]))
        assert (result.n_reference, result.n_found, result.precision, result.recall) == (0, 0, 1.0, 1.0)

    def test_agrees_with_scikit_learn(self) -> None:
        from sklearn.metrics.cluster import pair_confusion_matrix

        rng = np.random.default_rng(0)
        found, reference = rng.integers(0, 5, 200), rng.integers(0, 7, 200)
        (_, only_found), (only_reference, both) = pair_confusion_matrix(reference, found)
        result = lcms.compare(found, reference)
        assert result.precision == pytest.approx(both / (both + only_found))
        assert result.recall == pytest.approx(both / (both + only_reference))


@pytest.mark.slow
class TestModes:
    def test_fresh_finds_the_peptides(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, truth: np.ndarray) -> None:
        result = lcms.compare(fresh.labels, truth)
        assert result.precision > 0.98
        assert result.recall > 0.94
        assert (fresh.labels[truth < 0] == -1).mean() > 0.94
        widths = fresh.widths(peaks.points)[fresh.sizes >= 8]
        np.testing.assert_allclose(np.median(widths, axis=0), [5.98e-6, 2.35], rtol=0.15)
        assert fresh.occupation().sum() == len(fresh.centers)
        assert (fresh.occupation() * np.arange(len(fresh.occupation()))).sum() == (fresh.labels >= 0).sum()

    def test_the_sponge_is_clustered_again(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, tmp_path: Path) -> None:
        largest = np.argsort(-fresh.sizes)[:5]
        kept = np.setdiff1d(np.arange(len(fresh.centers)), largest)
        numbers = np.full(len(fresh.centers) + 1, -1)
        numbers[kept] = np.arange(len(kept))
        earlier = written(tmp_path, peaks, lcms.LcmsClusters(numbers[fresh.labels], fresh.centers[kept]))
        found = lcms.cluster_peaks(peaks, mode="sponge", earlier=[earlier], **FAST)
        known = earlier.labels >= 0
        np.testing.assert_array_equal(found.labels[known], earlier.labels[known])
        np.testing.assert_array_equal(found.centers[: len(kept)], fresh.centers[kept])
        taken_away = np.where(np.isin(fresh.labels, largest), fresh.labels, -1)
        again = lcms.compare(found.labels[~known], taken_away[~known])
        assert again.precision > 0.95
        assert again.recall > 0.95

    def test_results_join(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, tmp_path: Path) -> None:
        earlier = written(tmp_path, peaks, fresh)
        found = lcms.cluster_peaks(peaks, mode="join", earlier=[earlier, earlier])
        result = lcms.compare(found.labels, fresh.labels)
        assert abs(len(found.centers) - len(fresh.centers)) <= 2
        assert result.precision > 0.99
        assert result.recall > 0.99

    def test_the_factor_changes(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, tmp_path: Path) -> None:
        earlier = written(tmp_path, peaks, fresh)
        narrow = lcms.cluster_peaks(peaks, mode="factor", earlier=[earlier], sponge_factor=2.0)
        more = (narrow.labels < 0).mean() - (fresh.labels < 0).mean()
        # exp(-2) - exp(-9 / 2) of the real ones.
        assert more == pytest.approx(0.9 * 0.124, abs=0.05)

    def test_a_report_computes_nothing(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, tmp_path: Path) -> None:
        found = lcms.cluster_peaks(peaks, mode="report", earlier=[written(tmp_path, peaks, fresh)])
        np.testing.assert_array_equal(found.labels, fresh.labels)
        assert found.fitted is None

    def test_modes_say_what_they_need(self, fresh: lcms.LcmsClusters, peaks: lcms.Peaks, tmp_path: Path) -> None:
        earlier = written(tmp_path, peaks, fresh)
        for mode, given in (("fresh", [earlier]), ("sponge", []), ("join", []), ("factor", [earlier] * 2)):
            with pytest.raises(ConfigError, match=f"mode '{mode}' takes"):
                lcms.cluster_peaks(peaks, mode=mode, earlier=given)
        with pytest.raises(ConfigError, match="'other' is unknown"):
            lcms.cluster_peaks(peaks, mode="other")


@pytest.mark.slow
def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    cooling = ["cooling=0.9,0.98", "cooling_below=0.95,0.995"]
    command = ["lcms", "cluster", str(folder / "peaks.txt"), "-o", str(out), "--quiet", "--json", "--set", *cooling]
    assert main(command) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["peaks"] == 1500
    assert about["compared"]["mclust"]["precision"] > 0.95
    assert {path.suffix for path in out.iterdir()} == {".txt", ".tsv"}
    assert len((out / "peaks.tsv").read_text().splitlines()) == 1501
    assert len((out / "clusters.tsv").read_text().splitlines()) == about["clusters"] + 1
    (earlier,) = out.glob("clusters-M*")
    again = ["lcms", "cluster", str(folder / "peaks.txt"), "-o", str(tmp_path / "again"), "--mode", "report"]
    for given in (earlier, out):
        assert main([*again, "--earlier", str(given), "--compare", str(out), "--json", "--overwrite"]) == 0
        compared = json.loads(capsys.readouterr().out)["compared"]
        assert compared["golden"] == about["compared"]["golden"]
        assert compared[str(out)]["precision"] == compared[str(out)]["recall"] == 1
    assert main(["lcms", "cluster", str(folder / "peaks.txt"), "-o", str(earlier)]) == 2
    assert "name the folder" in capsys.readouterr().err
    for wrong in (["--set", "colour=3"], ["--set", "sigma=1,red"], ["--mode", "sponge"], ["--charge", "9"]):
        assert main([*again[:4], *wrong]) == 2


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ranks_of_the_command_write_the_same_clusters(tmp_path: Path) -> None:
    simulate(tmp_path, 60, 2, others=10)
    for name, more in (("alone", []), ("shared", ["--ranks", "2"])):
        assert main(["lcms", "cluster", str(tmp_path / "peaks.txt"), "-o", str(tmp_path / name), "--quiet", *more]) == 0
    for path in (tmp_path / "alone").iterdir():
        assert (tmp_path / "shared" / path.name).read_bytes() == path.read_bytes(), path.name
