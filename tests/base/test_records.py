"""Records of FASTA files as items."""

from __future__ import annotations

from pathlib import Path

import pytest

import tartan
from tartan.apps.genomes import Genomes
from tartan.apps.phylogeny import Phylogeny
from tartan.base.records import split_records
from tartan.errors import ConfigError


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_records_begin_at_the_start_of_a_line(end: bytes) -> None:
    text = end.join([b"\xef\xbb\xbf>sp|P1/2 > one", b"AC", b"", b"GT", b" >b", b">", b"A>C", b">b", b"T"])
    found = split_records(text)
    assert list(found) == ["sp|P1_2", "b", "unnamed", "b_2"]
    assert found["sp|P1_2"].split(end)[1:] == [b"AC", b"", b"GT", b""]
    assert found["unnamed"] == b">" + end + b"A>C" + end


def test_what_is_no_fasta_has_no_records() -> None:
    with pytest.raises(ValueError, match="the file is empty"):
        split_records(b" \n")
    for text in (b"ACGT", b"@read\nACGT", b"x\n>a\nACGT"):
        with pytest.raises(ValueError, match="only FASTA has records that are items"):
            split_records(text)


def test_records_are_items(tmp_path: Path) -> None:
    (tmp_path / "dna.fna").write_text(">a x\nACGTTGCATGACCA\n>b\nTGGTCATGCAACGT\n>c\nNNN\n")
    run = tartan.allpairs(Genomes(k=7, scaled=1, each="record"), str(tmp_path / "dna.fna"))
    assert list(run.keys) == ["dna.fna#a", "dna.fna#b", "dna.fna#c"]
    assert run.matrix("ani")[0, 1] == 1
    assert [failure.i for failure in run.failures] == [2]
    (tmp_path / "all.faa").write_text("".join(f">p{i}\n{'ACDEFGHIKLMNPQRSTVWY' * i}ACDE\n" for i in (2, 3, 4)))
    run = tartan.allpairs(Phylogeny(k=3, each="record"), str(tmp_path / "all.faa"))
    assert list(run.keys) == ["all.faa#p2", "all.faa#p3", "all.faa#p4"]


def test_each_changes_no_manifest_where_files_are_items() -> None:
    assert "each" not in Genomes().parameters()
    assert "each" not in Phylogeny().parameters()
    assert Phylogeny(each="record").parameters()["each"] == "record"
    with pytest.raises(ConfigError, match="each: 'read' is neither file nor record"):
        Genomes(each="read")
