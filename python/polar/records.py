"""records.py -- what a store of the laboratory knows, as records: pandas.DataFrame(polar.runs("polar.db")).
"""
import json
import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

from ._library import PolarError

_APPLICATION, _NEWEST = 0x706F6C72, 4    # store_impl.h
_NAME = re.compile(r"[a-z0-9_]{1,63}")    # pl_spec_is_word


def _open(store):
    if not os.path.exists(store):
        raise FileNotFoundError(f"no store '{store}': give the file that `polar run --store` wrote")
    try:
        db = sqlite3.connect(Path(os.path.abspath(store)).as_uri() + "?mode=ro", uri=True)
        db.execute("PRAGMA trusted_schema = OFF")    # what a file says is data
        application, version = (db.execute(f"PRAGMA {name}").fetchone()[0]
                                for name in ("application_id", "user_version"))
    except sqlite3.DatabaseError as e:
        raise PolarError(f"'{store}' cannot be read: {e}") from e
    if application != _APPLICATION:
        raise PolarError(f"'{store}' is an SQLite database of another program")
    if not 1 <= version <= _NEWEST:
        raise PolarError(f"'{store}' is of version {version}; this package reads 1 to {_NEWEST}")
    db.row_factory = sqlite3.Row
    return db, version


def runs(store: str = "polar.db", spec: Optional[str] = None) -> List[Dict[str, Any]]:
    """Every run of a store (of one spec): where it stands, its configuration (`config.KEY`) and its results
    (`result.NAME`).

    A run that belongs to several arms or specs is there once for each. Reads and writes nothing but the
    file's journal. The rows' checksums are not looked at here: `polar store check` does that, and
    polar.audit().
    """
    db, version = _open(store)
    configs = "SELECT key, json FROM config" if version >= 4 else "SELECT DISTINCT config, config FROM run"
    try:
        config = {key: json.loads(text) for key, text in db.execute(configs)}
        results: Dict[str, Dict[str, Any]] = {}
        for run, name, value in db.execute("SELECT run, name, value FROM result"):
            results.setdefault(run, {})[f"result.{name}"] = value
        query = (
            "SELECT member.spec, member.cell, member.arm, member.seed, run.id, run.testbed, run.state, "
            "run.wall, run.started, run.finished, run.code, "
            "run.device, run.config FROM member JOIN run ON run.id = member.run" +
            (" WHERE member.spec = ?" if spec else "") +
            " ORDER BY member.spec, member.cell, member.ord, member.seed")
        out = []
        for row in db.execute(query, (spec,) if spec else ()):
            record = {key: row[key] for key in row.keys() if key != "config"}
            record.update({f"config.{key}": value for key, value in config.get(row["config"], {}).items()})
            record.update(results.get(row["id"], {}))
            out.append(record)
        return out
    except (sqlite3.DatabaseError, ValueError, AttributeError) as e:
        raise PolarError(f"'{store}' is damaged: {e} (`polar store check` says what can be saved)") from e
    finally:
        db.close()


def audit(store: str = "polar.db",
          spec: Optional[str] = None,
          metric: Optional[str] = None,
          program: Optional[str] = None) -> List[Dict[str, Any]]:
    """The paired comparisons of a spec's arms, a record for each pair, as `polar audit` makes them.

    The statistics are the laboratory's: `program` (or `polar` on the PATH, or POLAR_PROGRAM) is asked for
    them. spec: its name in the store; without one, every spec of the store.
    """
    db, _ = _open(store)
    try:
        specs = [spec] if spec else [name for (name,) in db.execute("SELECT name FROM spec ORDER BY name")]
    except sqlite3.DatabaseError as e:
        raise PolarError(f"'{store}' is damaged: {e}") from e
    finally:
        db.close()
    for name in specs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):    # it becomes an argument of the program
            raise PolarError(f"'{store}' has a spec of the name {name!r}, which no spec can have")
    program = program or os.environ.get("POLAR_PROGRAM") or shutil.which("polar")
    if not program:
        raise PolarError(
            "the program `polar` is not on the PATH: build it (make) and say program='./polar', or set "
            "POLAR_PROGRAM"
        )
    out = []
    for name in specs:
        command = [program, "audit", name, "--store", store, "--format", "json"]
        command += ["--metric", metric] if metric else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise PolarError(f"polar audit: {done.stderr.strip()}")
        text = json.loads(done.stdout)
        out += [{"spec": name, "metric": text.get("metric"), **pair} for pair in _pairs(text)]
    return out


def _pairs(text):
    for pair in text["pairs"]:
        pair = dict(pair)
        pair["ci95_low"], pair["ci95_high"] = pair.pop("ci95")
        yield pair
