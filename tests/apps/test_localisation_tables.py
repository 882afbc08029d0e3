"""Tables and HDF5 files of localisations, as programs of the field write them; expected values are written out here."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.microscopy import Microscopy
from tartan.apps.microscopy.files import read_localisations, read_particle, split_file
from tartan.errors import ConfigError, ItemError

THUNDERSTORM = '"id","frame","x [nm]","y [nm]","sigma [nm]","intensity [photon]","uncertainty_xy [nm]"\n'
ROWS = [[1.5, 2.25, 9.5], [3.0, 4.75, 8.0], [-5.5, 6.0, 7.25]]
TABLE = THUNDERSTORM + "".join(f"{n},{7 - n},{x},{y},135.5,900,{s}\n" for n, (x, y, s) in enumerate(ROWS, 1))


def read(text: str | bytes, **options: Any) -> list[list[float]]:
    data = text.encode() if isinstance(text, str) else text
    return read_particle("a.csv", data, **options).tolist()


def parts_of(text: str, **options: Any) -> list[bytes]:
    parts = split_file("a.csv", text.encode(), **options)
    assert parts is not None
    return parts


@pytest.mark.parametrize(
    "data",
    [
        TABLE.encode(),
        TABLE.replace('"', "").encode(),
        TABLE.replace(",", "\t").encode(),
        TABLE.replace(",", ";").encode(),
        TABLE.replace(",", ";").replace(".", ",").encode(),
        TABLE.replace(",", "\t").replace(".", ",").encode(),
        TABLE.replace("\n", "\r\n").encode("utf-8-sig"),
        TABLE.encode("utf-16"),
        b"\xfe\xff" + TABLE.encode("utf-16-be"),
        ("# DECODE EmitterSet\n\n" + TABLE).encode(),
        TABLE.replace("uncertainty_xy", "Uncertainty").encode(),
    ],
    ids=[
        "quoted",
        "plain",
        "tabs",
        "semicolons",
        "commas",
        "tabs-commas",
        "bom",
        "utf16",
        "utf16be",
        "remarks",
        "case",
    ],
)
def test_every_form_of_a_table_of_thunderstorm_is_one_particle(data: bytes) -> None:
    assert split_file("a.csv", data) is None
    assert read(data) == ROWS
    assert read_localisations("a.csv", data).facts["unit"] == "nanometres"


def test_numbers_of_two_kinds_are_refused() -> None:
    with pytest.raises(
        ItemError, match=r"^a.csv: line 3: '1,5' has a decimal comma where other numbers have the other"
    ):
        read("x;y;sigma\n1.5;2;3\n1,5;2;3\n")
    with pytest.raises(ItemError, match=r"line 2: '1.234,5' has a decimal point"):
        read("x;y;sigma\n1.234,5;2;3\n")


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("x,y,uncertainty,locprecnm", "'uncertainty' and 'locprecnm' could both be meant by the uncertainty"),
        ("x,y,uncertainty_xy [nm],uncertainty", "'uncertainty' and 'uncertainty_xy [nm]' could both be"),
        ("x,y,lpx,lpy,uncertainty", "'uncertainty' and 'lpx' could both be meant"),
        ("x [nm],x [px],y [nm],uncertainty", "'x [nm]' and 'x [px]' could both be meant by x"),
        ("x,y,sigma,group,siteID", "'group' and 'siteID' could both be meant by the particle"),
        ("x,y,lpx", "it has 'lpx' without 'lpy'; keep both"),
        ("x [nm],y [nm],sigma [nm],intensity [photon]", "'sigma [nm]' beside 'intensity [photon]' is the width of the"),
        ("x,y,precision", "'precision' may be meant: rename"),
        ("x [nm],y [nm],lpx,lpy", "are in nanometres and in pixels; convert them"),
        ("x [um],y [um],uncertainty [nm]", "are in nanometres and in micrometres; convert them"),
    ],
)
def test_a_table_of_two_meanings_is_refused_and_both_are_named(header: str, named: str) -> None:
    line = ",".join("1" for _ in header.split(","))
    with pytest.raises(ItemError) as caught:
        read(f"{header}\n{line}\n")
    assert named in str(caught.value)


def test_a_column_of_particles_that_was_added_is_meant() -> None:
    assert len(parts_of("particle,group,x,y,sigma\n1,7,1,2,3\n2,7,1,2,3\n")) == 2


def test_ids_that_repeat_are_refused_since_they_may_name_particles() -> None:
    with pytest.raises(ItemError, match=r"'id' repeats values \(2 in 3 lines\): rename it to 'particle' if it names"):
        read("id,x,y,sigma\n1,1,2,3\n1,2,3,4\n2,2,3,4\n")
    assert read("id,x,y,sigma\n-1,1,2,3\n-1,2,3,4\n") == [[1, 2, 3], [2, 3, 4]]  # DECODE: none has one


def test_particles_come_in_the_order_of_their_first_lines() -> None:
    parts = parts_of("group,x,y,sigma\nb,1,2,3\na,4,5,6\nb,7,8,9\n")
    assert [read_particle("p", part).tolist() for part in parts] == [[[1, 2, 3], [7, 8, 9]], [[4, 5, 6]]]
    with pytest.raises(ItemError, match="line 3 has no value in the column 'group'; leave out what belongs to no"):
        parts_of("group,x,y,sigma\nb,1,2,3\n,4,5,6\n")


def test_smap_with_all_its_columns() -> None:
    """The header of ``saveLocalizationsCSV.m``, with the blank at its end; znm is 0 in two dimensions."""
    assert read("ID,frame,xnm,ynm,znm,phot,bg,locprecnm \n1,1,10,20,0,900,3,5\n2,2,11,22,0,800,3,6\n") == [
        [10, 20, 5],
        [11, 22, 6],
    ]


def test_sites_of_smap_leave_out_what_lies_in_none() -> None:
    text = "xnm,ynm,locprecnm,sitenumbers\n1,2,3,0\n4,5,6,2\n7,8,9,1\n10,11,12,2\n"
    parts = parts_of(text)
    assert [read_particle("p", part).tolist() for part in parts] == [[[4, 5, 6], [10, 11, 12]], [[7, 8, 9]]]
    assert read_localisations("p", parts[1]).facts["in no site"] == "1 of 4 localisations"
    with pytest.raises(ItemError, match="'sitenumbers' is 0 everywhere: no localisation lies in a site"):
        read("xnm,ynm,locprecnm,sitenumbers\n1,2,3,0\n4,5,6,0.0\n")
    with pytest.raises(ItemError, match="'sitenumbers' holds something else than numbers of sites"):
        read("xnm,ynm,locprecnm,sitenumbers\n1,2,3,a\n")


@pytest.mark.parametrize("unit", ["px", "nm"])
def test_decode_says_its_unit_in_its_remarks(unit: str) -> None:
    text = (
        f'# DECODE EmitterSet\n# {{"version": "v0.10"}}\n# {{"xy_unit": "{unit}", "px_size": [100.0, 100.0]}}\n'
        "x,y,z,phot,frame_ix,id,prob,bg,x_cr,y_cr,z_cr,x_sig,y_sig,z_sig\n"
        "1,2,0,900,1,-1,1,3,nan,nan,nan,3,4,50\n"
    )
    found = read_localisations("a.csv", text.encode())
    np.testing.assert_allclose(found.points, [[1, 2, np.sqrt((9 + 16) / 2)]], rtol=1e-15)
    assert found.facts["unit"] == {"px": "pixels", "nm": "nanometres"}[unit]
    assert found.facts["uncertainties"] == "x_sig and y_sig, root mean square"


WITH_Z = "x,y,z,uncertainty\n0,0,5,1\n10,0,6,1\n0,20,7,1\n"


def test_z_is_refused_where_it_varies_and_left_out_where_that_is_asked_for() -> None:
    flat = [[0, 0, 1], [10, 0, 1], [0, 20, 1]]
    assert read(WITH_Z, flat=True) == flat
    assert read_localisations("a.csv", WITH_Z.encode(), flat=True).facts["z left out"] == "from 5 to 7"
    assert read(WITH_Z.replace(",6,", ",5,").replace(",7,", ",5,")) == flat
    with pytest.raises(ItemError, match=r"^a.csv: its z varies from 5 to 7, .* --set dims=2 takes x and y only"):
        read(WITH_Z)


@pytest.mark.parametrize(
    "particle",
    [
        {"points": np.array([[0, 0, 5.0], [10, 0, 6], [0, 20, 7]]), "sigma": np.ones(3)},
        {"points": np.array([[0, 0, 5.0], [10, 0, 6], [0, 20, 7]]), "sigma": np.array([[1, 3.0]] * 3)},
        {"x": [0, 10, 0], "y": [0, 0, 20], "z": [5, 6, 7], "sigma": 1},
        {"coords": np.column_stack([[0, 10, 0], [0, 0, 20], [5, 6, 7], [9] * 3, [1] * 3, np.zeros((3, 4))])},
        np.array([[0, 0, 5.0, 1], [10, 0, 6, 1], [0, 20, 7, 1]]),
    ],
    ids=["points", "two-sigmas", "columns", "coords", "array"],
)
def test_z_of_arrays_and_mappings(particle: Any) -> None:
    points, _ = Microscopy(dims=2).parse("a", particle)
    assert points.tolist() == [[0, 0, 1], [10, 0, 1], [0, 20, 1]]
    with pytest.raises(ItemError, match=r"^a: its z varies from 5 to 7"):
        Microscopy().parse("a", particle)
    assert Microscopy(dims=2).describe_item("a", particle)["z left out"] == "from 5 to 7"


def test_that_z_is_left_out_is_said_aloud(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(WITH_Z)
    (tmp_path / "b.csv").write_text(WITH_Z)
    with pytest.warns(RuntimeWarning, match="dims=2: z is left out"):
        run = tartan.allpairs(Microscopy(dims=2), tmp_path, out=tmp_path / "r.tartan")
    assert not run.failures
    assert run.manifest.application["parameters"]["dims"] == 2
    assert "dims" not in Microscopy().parameters()
    for other in (3, True, "2"):
        with pytest.raises(ConfigError, match=r"^dims: .* is not 2, which takes x and y only"):
            Microscopy(dims=other)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["Infinity", "NaN", "", "-inf"])
def test_a_localisation_of_unknown_uncertainty_is_left_out_and_counted(missing: str) -> None:
    data = (
        THUNDERSTORM + f"1,1,50,60,135,900,{missing}\n" + "2,1,0,0,1,9,1\n3,1,10,0,1,9,1\n4,1,0,20,1,9,1\n"
    ).encode()
    points, _ = Microscopy().parse("a.csv", data)
    assert points.tolist() == [[0, 0, 1], [10, 0, 1], [0, 20, 1]]
    about = Microscopy().describe_item("a.csv", data)
    assert about["left out"] == "1 of 4 points, whose uncertainty is infinite or missing"
    assert (about["points"], about["width"]) == (4, 10)
    with pytest.raises(ItemError, match="line 2: '' is not a number"):
        read(data.replace(b"1,1,50,60", b"1,1,,60"))


def test_a_missing_uncertainty_of_json() -> None:
    found = read_particle("a.json", b'{"points": [[1, 2], [3, 4]], "sigma": [null, 5]}')
    np.testing.assert_array_equal(found, [[1, 2, np.nan], [3, 4, 5]])


def test_a_bad_point_keeps_its_number_where_one_before_it_is_left_out() -> None:
    points = np.array([[0, 0, np.inf], [0, 0, 1], [10, 0, 1], [0, np.nan, 1], [0, 20, 1]])
    with pytest.raises(ItemError, match=r"^a: without 1 of 5 points of unknown uncertainty, y of point 3 is nan"):
        Microscopy().parse("a", points)


def test_a_lone_table_says_how_particles_are_picked(tmp_path: Path) -> None:
    (tmp_path / "field.csv").write_text(TABLE.replace(",9.5", ",0.5").replace(",8.0", ",0.5").replace(",7.25", ",1"))
    says = "found 1 item .*the table is one item, since no column .* with a column 'particle' or 'group'"
    with pytest.raises(ConfigError, match=says):
        tartan.allpairs(Microscopy(), tmp_path / "field.csv", out=tmp_path / "r.tartan")
    (tmp_path / "one.json").write_text('{"points": [[0, 0], [10, 0], [0, 20]], "sigma": 1}')
    with pytest.raises(ConfigError, match=r"found 1 item .* name more, or compare it"):
        tartan.allpairs(Microscopy(), tmp_path / "one.json", out=tmp_path / "r.tartan")


# -- HDF5 ----------------------------------------------------------------------------------------------------------


def hdf5(columns: dict[str, Any] | None = None, name: str = "locs", **options: Any) -> bytes:
    h5py = pytest.importorskip("h5py")
    columns = columns or {"frame": [1, 2, 3], "x": [1, 2, 3.5], "y": [4, 5, 6], "lpx": [0.3, 1, 1], "lpy": [0.4, 1, 1]}
    kinds = [(one, "<f4" if np.asarray(values).dtype.kind == "f" else "<i4") for one, values in columns.items()]
    table = np.rec.fromarrays(list(columns.values()), dtype=kinds)
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.create_dataset(name, data=table, **options)
    return stream.getvalue()


YAML = b"Pixelsize: 999\nWidth: 32\n---\nBox size: 7\nPixelsize: 100.5\n---\nPick Areas (um^2):\n- 0.5\n"


@pytest.mark.parametrize(
    ("beside", "size", "unit"),
    [
        (None, 1, "pixels: no YAML file beside it gives the size of a pixel"),
        (b"Width: 32\nCamera.Pixelsize: 130\n  Pixelsize: 5\n", 1, "pixels: the YAML file beside it has no Pixelsize"),
        (YAML, 100.5, "nanometres: 100.5 a pixel, from the YAML file beside it"),
        (b"Pixelsize: 130\r\n", 130, "nanometres: 130 a pixel, from the YAML file beside it"),
    ],
)
def test_localisations_of_picasso(beside: bytes | None, size: float, unit: str) -> None:
    parts = split_file("a.hdf5", hdf5(), beside)
    assert parts is not None
    assert len(parts) == 1
    found = read_localisations("a.hdf5#0", parts[0])
    expected = np.array([[1, 4, np.sqrt(0.125)], [2, 5, 1], [3.5, 6, 1]]) * size
    np.testing.assert_allclose(found.points, expected, rtol=1e-6)  # float32 in the file
    assert found.facts == {"unit": unit, "uncertainties": "lpx and lpy, root mean square"}


def test_columns_of_picasso_in_text_are_in_pixels() -> None:
    found = read_localisations("a.csv", b"frame,x,y,lpx,lpy\n1,1,2,3,4\n")
    np.testing.assert_allclose(found.points, [[1, 2, np.sqrt(12.5)]])
    assert found.facts["unit"] == "pixels"


def test_groups_of_picasso_and_its_z() -> None:
    columns = {"x": [1.0, 2, 3], "y": [1.0, 2, 3], "z": [0.0, 50, 50], "lpx": [1.0] * 3, "lpy": [1.0] * 3}
    data = hdf5(columns | {"group": [4, 2, 2]}, compression="gzip", chunks=(2,))
    parts = split_file("a.hdf5", data)
    assert parts is not None
    assert [read_particle("p", part).tolist() for part in parts] == [[[1, 1, 1]], [[2, 2, 1], [3, 3, 1]]]
    whole = split_file("a.hdf5", hdf5(columns))
    assert whole is not None
    with pytest.raises(ItemError, match=r"^p: its z varies from 0 to 50"):
        read_particle("p", whole[0])
    flat = split_file("a.hdf5", hdf5(columns), flat=True)
    assert flat is not None
    assert read_particle("p", flat[0]).tolist() == [[1, 1, 1], [2, 2, 1], [3, 3, 1]]


def test_files_beside_are_found_and_their_change_is_noticed(tmp_path: Path) -> None:
    for name in ("a.hdf5", "b.h5"):
        (tmp_path / name).write_bytes(hdf5({"x": [0.0, 1, 0], "y": [0.0, 0, 2], "lpx": [0.1] * 3, "lpy": [0.1] * 3}))
    (tmp_path / "a.yaml").write_text("Pixelsize: 100\n")
    (tmp_path / "b.yaml").write_text("Pixelsize: 110\n")
    run = tartan.allpairs(Microscopy(), tmp_path, out=tmp_path / "r.tartan")
    assert list(run.keys) == ["a.hdf5#0", "b.h5#0"]
    assert "left_out" not in run.manifest.inputs  # the YAML files were read
    widths = [100, 110]
    other = tartan.allpairs(Microscopy(), [np.array([[0, 0, 0.1], [1, 0, 0.1], [0, 2, 0.1]]) * one for one in widths])
    np.testing.assert_allclose(run.matrix("scores")[0, 1], other.matrix("scores")[0, 1], rtol=1e-5)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (lambda: hdf5(name="data"), "it holds 'data'; read is the table 'locs' of Picasso; of other programs"),
        (lambda: hdf5({"x": [1.0], "y": [1.0]}), "its first line is 'x, y', without a column 'uncertainty'"),
        (lambda: hdf5()[:-900], "it cannot be read as HDF5"),
        (lambda: b"\x89HDF\r\n\x1a\n" + bytes(900), "it cannot be read as HDF5, it is damaged"),
    ],
)
def test_other_hdf5_files_are_refused(data: Any, says: str) -> None:
    with pytest.raises(ItemError, match=f"^a.hdf5: {says}"):
        split_file("a.hdf5", data())


@pytest.mark.parametrize("pixels", ["none", "0", "-130", "1e400"])
def test_a_pixel_without_a_size_is_refused(pixels: str) -> None:
    with pytest.raises(ItemError, match=f"Pixelsize: {pixels}, which is not a length in nanometres"):
        split_file("a.hdf5", hdf5(), f"Pixelsize: {pixels}\n".encode())


def test_a_table_that_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "real.hdf5").write_bytes(hdf5())
    with h5py.File(tmp_path / "link.hdf5", "w") as file:
        file["locs"] = h5py.ExternalLink(str(tmp_path / "real.hdf5"), "/locs")
    with pytest.raises(ItemError, match="read is the table 'locs' of Picasso"):
        split_file("a.hdf5", (tmp_path / "link.hdf5").read_bytes())
    kind = np.dtype([("x", "f4"), ("y", "f4"), ("lpx", "f4"), ("lpy", "f4")])
    with h5py.File(tmp_path / "external.hdf5", "w") as file:
        file.create_dataset("locs", (3,), kind, external=[(str(tmp_path / "real.hdf5"), 0, 48)])
    with pytest.raises(ItemError, match="lies in other files"):
        split_file("a.hdf5", (tmp_path / "external.hdf5").read_bytes())


def test_without_h5py_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = hdf5()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        ItemError, match=r"needs h5py: pip install 'tartan-allpairs\[hdf5\]'; or export it from Picasso"
    ):
        split_file("a.hdf5", data)
