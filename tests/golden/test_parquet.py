"""A directory of Parquet files that polars reads with nothing of ours."""

from __future__ import annotations

import json

import polars as pl
import pytest

from fixtures.examples import web_server
from stackhound.errors import OutputError
from stackhound.formats import by_name


def test_polars_joins_the_tables(tmp_path):
    by_name("parquet").write_directory(web_server(), tmp_path / "new" / "tables")
    samples, threads = (pl.read_parquet(tmp_path / f"new/tables/{name}.parquet") for name in ("samples", "threads"))
    by_comm = samples.join(threads, left_on="thread", right_on="id").group_by("comm").agg(pl.col("value").sum())
    assert dict(by_comm.iter_rows()) == {"nginx": 20_202_020, "nginx: worker": 10_101_010, "java": 10_101_010}


def test_every_table_and_the_metadata_are_there(tmp_path):
    profile = web_server()
    by_name("parquet").write_directory(profile, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"meta.json", *(f"{name}.parquet" for name in profile.tables)}
    assert json.loads((tmp_path / "meta.json").read_text())["host"]["name"] == "web-1"


def test_a_file_where_the_directory_should_be_is_the_users_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file"):
        by_name("parquet").write_directory(web_server(), tmp_path / "file")
