#!/usr/bin/env python3
"""Starts an encoding: its header, its source, its test and its line of the list.

    python tools/new_encoding.py NAME [--parameter WORD] [--root FOLDER]

NAME is lower case, words joined by hyphens: "my-bias" makes the class MyBias in
include/locus/encodings/my_bias.h, src/encodings/my_bias.cc and
tests/encodings/my_bias_test.cc. What is written builds and passes: a bias
-weight[h] |m - n| with one trained number per head, called "weight" unless
--parameter says otherwise. Put your own formula into Formula, its derivative into
Derivative, and the formula once more, as the paper has it, into the test.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

HEADER = """\
// @Class@: say in one line what it is.
#ifndef LOCUS_ENCODINGS_@GUARD@_H_
#define LOCUS_ENCODINGS_@GUARD@_H_

#include "locus/api.h"
#include "locus/encoding.h"

namespace LOCUS_API locus {

class @Class@ final : public Encoding {
 public:
  // @param@ [heads], positive.
  explicit @Class@(Tensor @param@);

  std::string_view Name() const override { return "@name@"; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor @param@_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_@GUARD@_H_
"""

SOURCE = """\
// @Class@: say what it is, with its paper.
//
//   s = scale * q.k - @param@_h |m - n|
#include "locus/encodings/@file@.h"

#include <cmath>

#include "encodings/common.h"

namespace locus {
namespace {

// The bias of a head with this @param@ at the offset x = m - n.
double Formula(double @param@, double x) { return -@param@ * std::abs(x); }

// Its derivative by @param@.
double Derivative(double /*@param@*/, double x) { return -std::abs(x); }

}  // namespace

@Class@::@Class@(Tensor @param@) : @param@_(std::move(@param@)) {
  if (@param@_.rank() != 1 || @param@_.size(0) < 1) {
    Fail("@Class@ needs @param@ [heads], got {}", @param@_.Describe());
  }
  for (int64_t h = 0; h < @param@_.size(0); ++h) {
    CheckPositive("@Class@'s @param@", @param@_.At(h));
  }
}

Lowered @Class@::Lower(const Shape& shape) const {
  CheckCallHeads("@Class@", @param@_.size(0), shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasByOffset(shape, [this](int64_t h, int64_t offset) {
    return Formula(@param@_.At(h), static_cast<double>(offset));
  });
  return lowered;
}

std::vector<Param> @Class@::Params() const { return {{"@param@", @param@_}}; }

std::unique_ptr<Encoding> @Class@::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<@Class@>(values[0]);
}

// d_@param@[h] = sum over offsets of d_bias[h, offset] d bias / d @param@
ParamGrads @Class@::PullBack(const Shape& shape, const TermGrads& grads) const {
  const Tensor& d_bias = std::get<BiasTableGrads>(*grads.bias).values;
  std::vector<double> d_@param@;
  for (int64_t h = 0; h < @param@_.size(0); ++h) {
    double sum = 0.0;
    for (int64_t b = 0; b < d_bias.size(1); ++b) {
      const auto x = static_cast<double>(shape.min_offset + b);
      sum += d_bias.At(h, b) * Derivative(@param@_.At(h), x);
    }
    d_@param@.push_back(sum);
  }
  return {{"@param@", Tensor::From({@param@_.size(0)}, d_@param@)}};
}

namespace {

// What the constructor takes.
constexpr Field k@Class@Fields[] = {
    {
        .name = "@param@",
        .type = FieldType::kTable,
        .shape = "heads",
        .sentence = "of the bias, positive",
    },
};
// What `-o` of the command line sets.
constexpr Field k@Class@Options[] = {
    {
        .name = "@param@",
        .type = FieldType::kReal,
        .fallback = "0.5",
        .sentence = "of the first head; each further head has half as much",
        .slider = {0.01, 100, 2, /*logarithmic=*/true},
    },
};
// How it trains.
constexpr ParamTraining k@Class@Training[] = {
    {.name = "@param@", .rate = kBiasRate, .lowest = 0.001},
};

}  // namespace

LOCUS_DESCRIPTOR(@Class@) = {
    .name = "@name@",
    .class_name = "@Class@",
    .title = "@Class@",
    .formula = "s = scale q.k - @param@_h |m - n|",
    .summary = "s - @param@[h] |m - n|, with one trained @param@ per head.",
    .paper = "unpublished",
    .models = "research",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "far keys fade",
    .picture = Picture::kBias,
    .fields = k@Class@Fields,
    .options = k@Class@Options,
    .training = k@Class@Training,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<@Class@>(f.Table("@param@"));
    },
    .settings = [](const Encoding& /*encoding*/) -> FieldValues { return {}; },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      CheckSize("the example's heads", config.heads);
      std::vector<double> @param@;
      for (int64_t h = 0; h < config.heads; ++h) {
        @param@.push_back(std::ldexp(o.Real("@param@"), -static_cast<int>(h)));
      }
      return {{"@param@", Tensor::From({config.heads}, @param@)}};
    },
};

}  // namespace locus
"""

TEST = """\
#include "locus/encodings/@file@.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(@file@);

namespace locus::testing {
namespace {

Tensor @Param@() { return Tensor::From({4}, std::vector<double>{1, .5, 2, 4}); }

TEST(@Class@Test, MatchesFormula) {
  const Tensor @param@ = @Param@();
  const auto score = [&](int64_t h, const auto& q, const auto& k, int64_t m,
                         int64_t n) {
    const double x = double(m - n);
    return ScaledDot(q, k) - @param@.At(h) * std::abs(x);
  };
  for (bool causal : {false, true}) {
    EXPECT_LE(PaperError(@Class@(@param@), {.causal = causal}, score),
              kPaperTolerance);
  }
}

TEST(@Class@Test, PullBackMatchesFiniteDifferences) {
  EXPECT_LE(PullBackError(@Class@(@Param@()), {.batch = 1}),
            kDifferenceTolerance);
}

TEST(@Class@Test, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { @Class@{Tensor::From({1}, std::vector{-1.0})}; }),
            "@Class@'s @param@ must be positive and finite, got -1");
  EXPECT_EQ(ErrorOf([] { @Class@{Tensor()}; }),
            "@Class@ needs @param@ [heads], got " + Tensor().Describe());
}

}  // namespace
}  // namespace locus::testing
"""


def tidy(paths):
    """Lines broken as `make format` has them, where that tool is installed."""
    if tool := shutil.which("clang-format-14"):
        style = pathlib.Path(__file__).resolve().parent.parent / ".clang-format"
        subprocess.run([tool, f"--style=file:{style}", "-i", *paths], check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("--parameter", default="weight", metavar="WORD")
    home = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=home)
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", args.name):
        sys.exit(f"a name is lower case, words joined by hyphens, got '{args.name}'")
    if not re.fullmatch(r"[a-z][a-z0-9]*", args.parameter):
        sys.exit(f"a parameter is one lower-case word, got '{args.parameter}'")
    words = {
        "name": args.name,
        "file": args.name.replace("-", "_"),
        "GUARD": args.name.replace("-", "_").upper(),
        "Class": "".join(part.capitalize() for part in args.name.split("-")),
        "param": args.parameter,
        "Param": args.parameter.capitalize(),
    }
    listing = args.root / "src/encodings/encodings.inc"
    listed = listing.read_text(encoding="utf-8")
    files = {
        f"include/locus/encodings/{words['file']}.h": HEADER,
        f"src/encodings/{words['file']}.cc": SOURCE,
        f"tests/encodings/{words['file']}_test.cc": TEST,
    }
    taken = [path for path in files if (args.root / path).exists()]
    if taken or re.search(rf"\b({words['file']},|{words['Class']}\))", listed):
        sys.exit(f"there is an encoding '{args.name}' already")
    for path, text in files.items():
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        (args.root / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    tidy([args.root / path for path in files])
    line = f"LOCUS_ENCODING({words['file']}, {words['Class']})\n"
    listing.write_text(listed + line, encoding="utf-8")
    print("added a line to src/encodings/encodings.inc")
    print(
        "next: put in your formula, then\n"
        "  cmake --preset release && cmake --build --preset release\n"
        "  cmake --build --preset release --target generate    "
        "# stubs and tables of the documents"
    )


if __name__ == "__main__":
    main()
