#!/usr/bin/env python3
"""Starts an encoding: its header, its source, its test and its line of the list.

    python tools/new_encoding.py NAME [--root FOLDER]

NAME is lower case, words joined by hyphens: "my-bias" makes the class MyBias in
include/locus/encodings/my_bias.h, src/encodings/my_bias.cc and
tests/encodings/my_bias_test.cc. What is written builds and passes: a bias
-weight[h] |m - n| with one trained weight per head. Replace the formula in Lower,
PullBack and the test by your own. Headers of encodings are included by
include/locus/encodings/all.h, which is rewritten.
"""

import argparse
import pathlib
import re
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
  // weight [heads], positive.
  explicit @Class@(Tensor weight);

  std::string_view Name() const override { return "@name@"; }
  Lowered Lower(const Shape& shape) const override;
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;

 private:
  Tensor weight_;
};

}  // namespace locus

#endif  // LOCUS_ENCODINGS_@GUARD@_H_
"""

SOURCE = """\
// @Class@: a trained linear bias. Put your formula and its paper here.
//
//   s = scale * q.k - weight_h |m - n|
#include "locus/encodings/@file@.h"

#include <cmath>

#include "encodings/common.h"

namespace locus {
namespace {

// The bias at an offset m - n, for weight 1.
double Shape1(int64_t offset) { return -std::abs(static_cast<double>(offset)); }

}  // namespace

@Class@::@Class@(Tensor weight) : weight_(std::move(weight)) {
  if (weight_.rank() != 1 || weight_.size(0) < 1) {
    Fail("@Class@ needs weight [heads], got {}", weight_.Describe());
  }
  for (int64_t h = 0; h < weight_.size(0); ++h) {
    CheckPositive("@Class@'s weight", weight_.At(h));
  }
}

Lowered @Class@::Lower(const Shape& shape) const {
  CheckCallHeads("@Class@", weight_.size(0), shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasByOffset(shape, [this](int64_t h, int64_t offset) {
    return weight_.At(h) * Shape1(offset);
  });
  return lowered;
}

std::vector<Param> @Class@::Params() const { return {{"weight", weight_}}; }

std::unique_ptr<Encoding> @Class@::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<@Class@>(values[0]);
}

ParamGrads @Class@::PullBack(const Shape& shape, const TermGrads& grads) const {
  const Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
  std::vector<double> d_weight(static_cast<size_t>(weight_.size(0)));
  for (int64_t h = 0; h < weight_.size(0); ++h) {
    for (int64_t b = 0; b < d.size(1); ++b) {
      // bias = weight * shape(offset)
      d_weight[static_cast<size_t>(h)] +=
          d.At(h, b) * Shape1(shape.min_offset + b);
    }
  }
  return {{"weight", Tensor::From({weight_.size(0)}, std::move(d_weight))}};
}

namespace {

constexpr Field k@Class@Fields[] = {{.name = "weight",
                              .type = FieldType::kTable,
                              .shape = "heads",
                              .sentence = "of the bias, positive"}};
constexpr Field k@Class@Options[] = {{.name = "weight",
                               .type = FieldType::kReal,
                               .fallback = "0.5",
                               .sentence = "of the first head; others halve",
                               .slider = {0.01, 2, 2, /*logarithmic=*/true}}};
constexpr ParamTraining k@Class@Training[] = {
    {.name = "weight", .rate = kBiasRate, .lowest = 0.001}};

}  // namespace

LOCUS_DESCRIPTOR(@Class@) = {
    .name = "@name@",
    .class_name = "@Class@",
    .title = "@Class@",
    .formula = "s = scale q.k - weight_h |m - n|",
    .summary = "s - weight[h] |m - n|, with one trained weight per head.",
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
      return std::make_unique<@Class@>(f.Table("weight"));
    },
    .settings = [](const Encoding& /*encoding*/) -> FieldValues { return {}; },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      CheckSize("the example's heads", config.heads);
      std::vector<double> weight;
      for (int64_t h = 0; h < config.heads; ++h) {
        weight.push_back(std::ldexp(o.Real("weight"), -static_cast<int>(h)));
      }
      return {{"weight", Tensor::From({config.heads}, std::move(weight))}};
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

Tensor Weight() { return Tensor::From({4}, std::vector<double>{1, .5, 2, .1}); }

TEST(@Class@Test, MatchesFormula) {
  const Tensor weight = Weight();
  const auto score = [&](int64_t h, const auto& q, const auto& k, int64_t m,
                         int64_t n) {
    return ScaledDot(q, k) - weight.At(h) * std::abs(double(m - n));
  };
  for (bool causal : {false, true}) {
    EXPECT_LE(PaperError(@Class@(weight), {.causal = causal}, score),
              kPaperTolerance);
  }
}

TEST(@Class@Test, PullBackMatchesFiniteDifferences) {
  EXPECT_LE(PullBackError(@Class@(Weight()), {.batch = 1}),
            kDifferenceTolerance);
}

TEST(@Class@Test, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { @Class@{Tensor::From({1}, std::vector{-1.0})}; }),
            "@Class@'s weight must be positive and finite, got -1");
  EXPECT_EQ(ErrorOf([] { @Class@{Tensor()}; }),
            "@Class@ needs weight [heads], got " + Tensor().Describe());
}

}  // namespace
}  // namespace locus::testing
"""

ALL = """\
// Every encoding; tools/new_encoding.py adds to it.
#ifndef LOCUS_ENCODINGS_ALL_H_
#define LOCUS_ENCODINGS_ALL_H_

{includes}
#endif  // LOCUS_ENCODINGS_ALL_H_
"""


def write_all(root):
    """include/locus/encodings/all.h, from the headers beside it."""
    folder = root / "include/locus/encodings"
    names = sorted(p.name for p in folder.glob("*.h") if p.name != "all.h")
    includes = "".join(f'#include "locus/encodings/{name}"\n' for name in names)
    (folder / "all.h").write_text(ALL.format(includes=includes), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    home = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=home)
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", args.name):
        sys.exit(f"a name is lower case, words joined by hyphens, got '{args.name}'")
    words = {
        "name": args.name,
        "file": args.name.replace("-", "_"),
        "GUARD": args.name.replace("-", "_").upper(),
        "Class": "".join(part.capitalize() for part in args.name.split("-")),
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
    line = f"LOCUS_ENCODING({words['file']}, {words['Class']})\n"
    listing.write_text(listed + line, encoding="utf-8")
    write_all(args.root)
    print("added a line to src/encodings/encodings.inc")
    print(
        "next: put in your formula, then\n"
        "  cmake --preset release && cmake --build --preset release\n"
        "  cmake --build --preset release --target generate    "
        "# stubs and tables of the documents"
    )


if __name__ == "__main__":
    main()
