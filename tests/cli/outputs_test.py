"""What the tool writes: files, standard output and messages.

usage: outputs_test.py LOCUS [SUITE]
"""

import json
import os
import pathlib
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tool import LOCUS, good, run

CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 128,
    "max_position_embeddings": 128,
}
# What a terminal acts on: an escape, its 8-bit spelling, a bell, DEL, an override
# of the direction of writing.
HOSTILE = "\x1b[31m\x9b31m\x07\x7f\u202e"


def steers(text: str) -> bool:
    """Whether a terminal would do more than print it."""
    return any(
        c in text for c in "\u202e\x7f" + "".join(map(chr, range(0x80, 0xA0)))
    ) or any(ord(c) < 32 and c != "\n" for c in text)


def safetensors(path: pathlib.Path, layers: int) -> None:
    """A model of q and k weights, 8 MB a layer; sparse, so that it is quick."""
    header, at = {}, 0
    for layer in range(layers):
        for name in ("q_proj", "k_proj"):
            header[f"model.layers.{layer}.self_attn.{name}.weight"] = {
                "dtype": "F32",
                "shape": [1024, 1024],
                "data_offsets": [at, at + (4 << 20)],
            }
            at += 4 << 20
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


class Folder(unittest.TestCase):
    """A folder of its own for each test."""

    def setUp(self) -> None:
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, fields: dict) -> str:
        (self.folder / name).write_text(json.dumps(fields), encoding="utf-8")
        return self.path(name)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def refused(self, *args: str, says: str) -> None:
        code, out, err = run(*args)
        self.assertEqual((code, out), (2, ""), (args, err))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(says, err)


class Outputs(Folder):
    """Whole or not there, and never in place of a device, a pipe or a link."""

    def commands(self, out: str) -> list[list[str]]:
        self.write("config.json", CONFIG)
        safetensors(self.folder / "model.safetensors", 1)
        bench = [
            "bench",
            "--decode",
            "--encodings",
            "none",
            "--length",
            "64",
            "--repeats",
            "1",
        ]
        return [
            ["show", "rope", "--out", out + ".png"],
            [
                "convert-layout",
                self.path("model.safetensors"),
                out + ".png",
                "--to",
                "interleaved",
            ],
            [*bench, "--save", out + ".png"],
            ["bench", "--length", "64", "--repeats", "1", "--chart", out + ".png"],
        ]

    def test_refuse_what_is_no_regular_file(self) -> None:
        for command in self.commands(self.path("out")):
            out = pathlib.Path(self.path("out.png"))
            with self.subTest(command=command[0], kind="pipe"):
                os.mkfifo(out)
                self.refused(*command, says="it exists and is not a regular file")
                self.assertTrue(stat.S_ISFIFO(out.stat().st_mode))
                out.unlink()
            with self.subTest(command=command[0], kind="device"):
                out.symlink_to("/dev/null")
                self.refused(*command, says="it exists and is not a regular file")
                self.assertTrue(stat.S_ISCHR(out.stat().st_mode))
                out.unlink()
            with self.subTest(command=command[0], kind="folder"):
                out.mkdir()
                self.refused(*command, says="it is a folder")
                out.rmdir()
            self.assertEqual(self.names(), ["config.json", "model.safetensors"])

    def test_links_are_followed(self) -> None:
        for command in self.commands(self.path("out"))[:3]:
            with self.subTest(command=command[0]):
                target = self.folder / "target"
                target.write_text("old")
                out = self.folder / "out.png"
                out.symlink_to("target")
                self.assertEqual(run(*command)[0], 0)
                self.assertTrue(out.is_symlink())
                self.assertNotEqual(target.read_bytes(), b"old")
                out.unlink()
                target.unlink()

    def test_bad_places_are_found_at_once(self) -> None:
        # Without --length and --repeats a benchmark takes minutes.
        for flag in ("--chart", "--save"):
            begin = time.monotonic()
            self.refused("bench", flag, "/no/such/x.png", says="No such file")
            self.assertLess(time.monotonic() - begin, 30)

    def test_bench_needs_a_repeat(self) -> None:
        self.refused("bench", "--repeats", "0", says="--repeats must lie in 1 .. 1000")


class Interrupted(Folder):
    """convert-layout, stopped in its midst."""

    def start(self, layers: int, **more) -> subprocess.Popen:
        self.write("config.json", CONFIG)
        safetensors(self.folder / "model.safetensors", layers)
        return subprocess.Popen(
            [
                LOCUS,
                "convert-layout",
                self.path("model.safetensors"),
                self.path("out"),
                "--to",
                "interleaved",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def wait_for_part(self, process: subprocess.Popen) -> None:
        while not list(self.folder.glob("out.*.part")):
            self.assertIsNone(process.poll(), "it ended before it was stopped")
            time.sleep(0.001)

    def test_signals_leave_nothing(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process = self.start(layers=128)  # a gigabyte, if it went on
                self.wait_for_part(process)
                process.send_signal(number)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, -number)
                self.assertEqual(self.names(), ["config.json", "model.safetensors"])

    def test_an_ignored_signal_stays_ignored(self) -> None:
        process = self.start(
            layers=8,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        self.wait_for_part(process)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_a_file_past_the_limit_is_a_sentence(self) -> None:
        most = 1 << 20
        process = self.start(
            layers=1,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, err)
        self.assertIn("File too large", err)
        self.assertEqual(self.names(), ["config.json", "model.safetensors"])

    def test_an_input_that_shrinks_is_a_sentence(self) -> None:
        process = self.start(layers=128)
        self.wait_for_part(process)
        os.truncate(self.folder / "model.safetensors", 1 << 20)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, err)
        self.assertIn("became shorter while it was read", err)
        self.assertEqual(self.names(), ["config.json", "model.safetensors"])


class Terminal(Folder):
    """Nothing of a file reaches the terminal but as plain characters."""

    def check(self, *args: str) -> str:
        """Both streams of a call, which must be harmless."""
        code, out, err = run(*args)
        self.assertIn(code, (0, 1, 2), err)
        self.assertFalse(steers(out), repr(out))
        self.assertFalse(steers(err), repr(err))
        return out + err

    def test_every_place_of_a_config(self) -> None:
        spoilt = [
            {"model_type": HOSTILE},
            {"model_type": {"a": HOSTILE}},
            {HOSTILE: 1},
            {"rope" + HOSTILE: 1},
            {"hidden_size": HOSTILE},
            {"layer_types": [HOSTILE] * 128, "model_type": "qwen3"},
            {"rope_scaling": {"rope_type": HOSTILE, "factor": 2.0}},
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, HOSTILE: 1}},
            {"rope_parameters": {HOSTILE: {}, "full_attention": {}}},
            {"text_config": {"model_type": HOSTILE}},
            {"position_embedding_type": HOSTILE, "model_type": "bert"},
        ]
        for n, fields in enumerate(spoilt):
            path = self.write(f"{n}.json", CONFIG | fields)
            for more in ((), ("--lenient",), ("--json",), ("--lenient", "--json")):
                with self.subTest(fields=fields, more=more):
                    self.check("explain", path, *more)
        # Two that differ.
        first = self.write("a.json", CONFIG | {"rope" + HOSTILE: 1})
        second = self.write("b.json", CONFIG | {"rope_theta": 5.0})
        self.check("explain", "--lenient", first, second)

    def test_text_that_is_no_json(self) -> None:
        for name, text in (
            ("raw", '{"a": "' + HOSTILE),
            ("token", HOSTILE),
            ("twice", json.dumps({"model_type": 1})[:-1] + ', "model_type": 2}'),
        ):
            with self.subTest(name=name):
                (self.folder / name).write_text(text, encoding="utf-8")
                self.check("explain", self.path(name))

    def test_names_of_files_and_tensors(self) -> None:
        path = self.write(HOSTILE + ".json", CONFIG)
        self.assertIn("\\x1b[31m", self.check("explain", path))
        out = self.check("explain", path, "--json")
        self.assertIn(HOSTILE, json.loads(out)["file"])
        self.check("explain", path + "absent")
        self.write("config.json", CONFIG)
        for index in (
            {"weight_map": {HOSTILE: 7}},
            {"weight_map": {HOSTILE: "absent"}},
            {"weight_map": {"a": HOSTILE}},
            {HOSTILE: 1},
        ):
            with self.subTest(index=index):
                path = self.write("i.index.json", index)
                self.check(
                    *("convert-layout", path, self.path("new"), "--to", "halves")
                )
        self.check(HOSTILE)
        self.check("show", HOSTILE)
        self.check("show", "rope", "-o", HOSTILE)

    def test_a_key_twice_is_named(self) -> None:
        path = self.folder / "twice.json"
        path.write_text(json.dumps(CONFIG)[:-1] + ', "rope_theta": 1, "rope_theta": 2}')
        code, _, err = run("explain", str(path))
        self.assertEqual(code, 2)
        self.assertEqual(
            err, 'locus: the config has the key "rope_theta" twice in one object\n'
        )


class Streams(Folder):
    """Standard output that takes nothing."""

    def test_full_or_closed(self) -> None:
        config = self.write("config.json", CONFIG)
        for args in (
            ("--help",),
            ("show", "--help"),
            ("list",),
            ("list", "--json"),
            ("version",),
            ("explain", config),
            ("show", "rope"),
        ):
            for kind, redirect in (("full", ">/dev/full"), ("closed", ">&-")):
                with self.subTest(args=args, kind=kind):
                    done = subprocess.run(
                        ["sh", "-c", f'"$0" "$@" {redirect}', LOCUS, *args],
                        capture_output=True,
                        text=True,
                        check=False,
                        timeout=60,
                    )
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertIn("cannot write to standard output", done.stderr)


class Prompt(Folder):
    """Large and endless inputs end soon."""

    def seconds(self, *args: str) -> float:
        """CPU time of a call that succeeds: the least of three."""
        least = 1e9
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            good(*args)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime
            least = min(least, spent - before.ru_utime - before.ru_stime)
        return least

    def test_time_follows_the_layers(self) -> None:
        # Every layer has a scale of its own: as many groups as layers.
        def seconds(layers: int) -> float:
            fields = {
                **{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": layers},
                **{"n_positions": 128, "scale_attn_by_inverse_layer_idx": True},
            }
            return self.seconds("explain", self.write("gpt2.json", fields))

        once, four = seconds(1000), seconds(4000)
        # By the square it would be 16 times.
        self.assertLess(four, 10 * once)

    def test_endless_and_large_configs(self) -> None:
        safetensors(self.folder / "model.safetensors", 1)
        self.refused("explain", "/dev/zero", says="16777216 bytes that a config may")
        self.refused(
            *("convert-layout", self.path("model.safetensors"), self.path("out")),
            *("--to", "halves", "--config", "/dev/zero"),
            says="16777216 bytes that a config may",
        )
        with (self.folder / "large.json").open("w") as file:
            file.write("{")
            file.truncate(50 << 20)
        self.refused(
            *("explain", self.path("large.json")),
            says="16777216 bytes that a config may",
        )
        # A pipe is as good as a file.
        config = self.write("config.json", CONFIG)
        with open(config) as file:
            done = subprocess.run(
                [LOCUS, "explain", "/dev/stdin"],
                stdin=file,
                check=False,
                timeout=60,
                stdout=subprocess.PIPE,
            )
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
