// Validation, description, zero gradients, scale and bias of terms.
#include "locus/terms.h"

#include <fmt/format.h>

#include <limits>

#include "locus/attention.h"
#include "locus/error.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// A call with 4 heads of 8 channels and positions 0 .. 9.
Shape ExampleShape() { return Shape::SelfAttention(4, 8, 10); }

Rotation ExampleRotation() {
  return {.layout = PairLayout::kHalves,
          .rotary_dim = 6,
          .first_channel = 2,
          .theta = {1.0, 0.5, 0.25}};
}

BucketTable ExampleTable() {
  return {.rows = RandomTensor({4, 7, 8}, 1),
          .buckets = BucketMap::Clip(-3, 3)};
}

BiasProfile ExampleProfile() {
  return {.distance = std::vector<double>(10, 0.5),
          .row_gain = std::vector<double>(10, 2.0),
          .first_position = 0,
          .knots = {0.25, 0.75},
          .base = RandomTensor({4, 3}, 2),
          .slope = RandomTensor({4, 3}, 3)};
}

// Terms with every member set.
Terms Everything() {
  Terms t;
  t.input_add = InputAdd{
      .table = RandomTensor({12, 32}, 4), .first_position = -2, .widen = 0};
  t.scale = {.scale = 0.5};
  t.rotate = ExampleRotation();
  t.extra_dot = ExtraDot{.q_rows = RandomTensor({4, 10, 3}, 5),
                         .k_rows = RandomTensor({1, 10, 3}, 6)};
  t.q_table = ExampleTable();
  t.k_table = ExampleTable();
  t.bias = BiasTable{RandomTensor({1, 7}, 7), BucketMap::Clip(-3, 3)};
  t.v_table =
      BucketTable{RandomTensor({1, 19, 5}, 8), BucketMap::Identity(-9, 9)};
  return t;
}

// The message of Validate after `change` has made valid terms invalid.
template <typename Change>
std::string Refusal(const Change& change) {
  Terms terms = Everything();
  Shape shape = ExampleShape();
  change(terms, shape);
  return ErrorOf([&] { Validate(terms, shape); });
}

TEST(TermsTest, ValidTermsPass) {
  EXPECT_EQ(Refusal([](Terms&, Shape&) {}), "");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t = Terms{}; }), "");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t.bias = ExampleProfile(); }), "");
}

TEST(TermsTest, RefusesBadInputTables) {
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.input_add->table = RandomTensor({12}, 1);
            }),
            "an input table must be [positions, model_dim], got f64 [12]");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t.input_add->first_position = 1; }),
            "the input table has rows for positions 1 .. 12, but the call has "
            "position 0");
  EXPECT_EQ(Refusal([](Terms&, Shape& s) { s.max_k_pos = 10; }),
            "the input table has rows for positions -2 .. 9, but the call has "
            "position 10");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.input_add->first_position = std::numeric_limits<int64_t>::min();
            }),
            "the first position of the input table must lie in "
            "[-2305843009213693952, 2305843009213693951], got "
            "-9223372036854775808");
}

TEST(TermsTest, RefusesBadScales) {
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t.scale.scale = INFINITY; }),
            "the scale must lie in [-1e+18, 1e+18], got inf");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t.scale.scale = -1e38; }),
            "the scale must lie in [-1e+18, 1e+18], got -1e+38");
  EXPECT_EQ(
      Refusal([](Terms& t, Shape&) {
        t.scale.rows = Tensor::From({1, 10}, std::vector<double>(10, NAN));
      }),
      "the scale of a query must lie in [-1e+18, 1e+18], got nan");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.scale = {.scale = 1e18, .rows = RandomTensor({3, 10}, 1)};
            }),
            "the scale f64 [3, 10] has 3 heads, but the call has 4");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.scale.rows = RandomTensor({4, 10}, 1);
              t.scale.first_position = 1;
            }),
            "the scale has rows for positions 1 .. 10, but the call has "
            "position 0");
}

TEST(TermsTest, RefusesBadTemperatures) {
  const auto refusal = [](const QueryTemperature& temperature, int64_t first,
                          int64_t last) {
    Shape shape = ExampleShape();
    shape.min_q_pos = first;
    shape.max_q_pos = last;
    Scale scale;
    try {
      temperature.Set(shape, scale);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({.beta = NAN}, 0, 9),
            "the temperature's slope must lie in [-1e+18, 1e+18], got nan");
  EXPECT_EQ(refusal({.beta = 1.0, .shift = std::numeric_limits<int64_t>::max()},
                    0, 9),
            "the temperature's shift must lie in [-2305843009213693952, "
            "2305843009213693951], got 9223372036854775807");
  EXPECT_EQ(refusal({.beta = 1.0, .span = 0}, 0, 9),
            "the temperature's span must be positive, got 0");
  EXPECT_EQ(refusal({.beta = 0.1, .shift = 1}, -2, 9),
            "the temperature needs query positions of at least -1, got -2");
  EXPECT_EQ(refusal({.beta = 0.1}, 0, int64_t{1} << 40),
            "the temperature needs query positions within 16777216 of each "
            "other, got 0 to 1099511627776");
}

TEST(TermsTest, RefusesBadRotations) {
  const auto refusal = [](const auto& change) {
    return Refusal([&](Terms& t, Shape&) { change(*t.rotate); });
  };
  EXPECT_EQ(refusal([](Rotation& r) { r.rotary_dim = 5; }),
            "rotary_dim must be even, got 5");
  EXPECT_EQ(refusal([](Rotation& r) { r.first_channel = 3; }),
            "6 rotary channels from 3 on do not fit a head of 8");
  EXPECT_EQ(refusal([](Rotation& r) { r.theta.resize(2); }),
            "3 pairs need 3 frequencies, got 2");
  EXPECT_EQ(refusal([](Rotation& r) { r.theta[1] = NAN; }),
            "a frequency must lie in [-1e+18, 1e+18], got nan");
  EXPECT_EQ(refusal([](Rotation& r) { r.theta[1] = 1e308; }),
            "a frequency must lie in [-1e+18, 1e+18], got 1e+308")
      << "times a position it would be infinite";
  for (double gain : {double(INFINITY), 0.0, 1e30, -1e-30}) {
    EXPECT_EQ(refusal([&](Rotation& r) { r.gain = gain; }),
              fmt::format("the rotation's gain must lie between 1e-09 and "
                          "1e+09 in size, got {}",
                          gain));
  }
  EXPECT_EQ(refusal([](Rotation& r) {
              r.first_channel = std::numeric_limits<int64_t>::max();
            }),
            "6 rotary channels from 9223372036854775807 on do not fit a head "
            "of 8");
  EXPECT_EQ(refusal([](Rotation& r) { r.log_decay = {0.1}; }),
            "3 pairs need 3 decays (or none), got 1");
  EXPECT_EQ(refusal([](Rotation& r) {
              r.log_decay = {0.1, NAN, 0.1};
            }),
            "a decay is not finite: nan");
  EXPECT_EQ(refusal([](Rotation& r) {
              r.axis = {0, 0};
            }),
            "3 pairs need 3 axis numbers (or none), got 2");
  EXPECT_EQ(refusal([](Rotation& r) {
              r.axis = {0, 1, 0};
            }),
            "a pair rotates by axis 1, but there are 1 axes");
  EXPECT_EQ(refusal([](Rotation& r) { r.axes = {{.divisor = 0}}; }),
            "an axis needs a divisor >= 1 and a modulus >= 0, got 0 and 0");
  EXPECT_EQ(Refusal([](Terms& t, Shape& s) {
              t.rotate->axes = {{.divisor = 2}};
              s.min_k_pos = -1;
            }),
            "rotation by coordinates needs positions >= 0, got -1");
}

TEST(TermsTest, RefusesBadExtraDimensions) {
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.extra_dot->k_rows = RandomTensor({4, 10, 2}, 1);
            }),
            "extra dimensions must be [heads, positions, E] on both sides, "
            "got f64 [4, 10, 3] and f64 [4, 10, 2]");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.extra_dot->q_rows = RandomTensor({2, 10, 3}, 1);
            }),
            "the query side of the extra dimensions f64 [2, 10, 3] has 2 "
            "heads, but the call has 4");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.extra_dot->k_rows = RandomTensor({3, 10, 3}, 1);
            }),
            "the key side of the extra dimensions f64 [3, 10, 3] has 3 heads, "
            "but the call has 4");
  EXPECT_EQ(Refusal([](Terms& t, Shape& s) {
              t.input_add.reset();
              s.max_k_pos = 10;
            }),
            "the extra dimensions has rows for positions 0 .. 9, but the call "
            "has position 10");
}

TEST(TermsTest, RefusesBadBucketTables) {
  EXPECT_EQ(Refusal([](Terms& t, Shape&) { t.q_table->rows = Tensor(); }),
            "the query table must be [heads, 7, 8], got none");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.k_table->rows = RandomTensor({4, 7, 6}, 1);
            }),
            "the key table must be [heads, 7, 8], got f64 [4, 7, 6]");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.q_table->rows = RandomTensor({2, 7, 8}, 1);
            }),
            "the query table f64 [2, 7, 8] has 2 heads, but the call has 4");
  EXPECT_EQ(Refusal([](Terms& t, Shape&) {
              t.v_table->rows = RandomTensor({19, 5}, 1);
            }),
            "the value table must be [heads, 19, 8], got f64 [19, 5]");
  EXPECT_EQ(Refusal([](Terms&, Shape& s) { s.max_offset = 10; }),
            "the value table covers offsets -9 .. 9, but the call has offsets "
            "-9 .. 10");
}

TEST(TermsTest, RefusesBadBiases) {
  const auto refusal = [](Bias bias) {
    return Refusal([&](Terms& t, Shape&) { t.bias = std::move(bias); });
  };
  EXPECT_EQ(refusal(BiasTable{RandomTensor({4, 6}, 1), BucketMap::Clip(-3, 3)}),
            "a bias table must be [heads, 7], got f64 [4, 6]");
  EXPECT_EQ(refusal(BiasTable{RandomTensor({3, 7}, 1), BucketMap::Clip(-3, 3)}),
            "the bias table f64 [3, 7] has 3 heads, but the call has 4");
  EXPECT_EQ(
      refusal(BiasTable{RandomTensor({4, 9}, 1), BucketMap::Identity(0, 8)}),
      "the bias table covers offsets 0 .. 8, but the call has offsets -9 .. 9");
  EXPECT_EQ(
      refusal(BiasTable{RandomTensor({4, 9}, 1), BucketMap::Window2D(2, 2)}),
      "the bias table covers offsets -4 .. 4, but the call has offsets -13 .. "
      "13")
      << "position 9 of a window 2 wide is row 4, column 1";
  BucketMap shifted = BucketMap::Window2D(2, 5);
  shifted.grid->origin = 1;
  EXPECT_EQ(refusal(BiasTable{RandomTensor({4, 27}, 1), shifted}),
            "the bias table is a 2-D window from position 1 on, but the call "
            "has position 0");
  EXPECT_EQ(refusal(BiasRamp{{1, 1, 1}, {1, 1, 1, 1}}),
            "a bias ramp for 4 heads has 3 and 4 slopes");
  EXPECT_EQ(refusal(BiasRamp{{1, 1, 1, 1}, {1, -1e30, 1, 1}}),
            "a slope of the bias must lie in [-1e+18, 1e+18], got -1e+30");
  BiasProfile p = ExampleProfile();
  p.slope = Tensor();
  EXPECT_EQ(refusal(p),
            "a bias profile's base and slope must be [heads, 3], got f64 [4, "
            "3] and none");
  p = ExampleProfile();
  p.knots.push_back(2.0);
  EXPECT_EQ(refusal(p),
            "a bias profile's base and slope must be [heads, 4], got f64 [4, "
            "3] and f64 [4, 3]");
  p = ExampleProfile();
  p.base = p.slope = RandomTensor({2, 3}, 1);
  EXPECT_EQ(refusal(p),
            "the bias profile f64 [2, 3] has 2 heads, but the call has 4");
  p = ExampleProfile();
  p.distance.resize(9);
  EXPECT_EQ(refusal(p),
            "the bias profile covers distances up to 8, but the call has 9");
  p = ExampleProfile();
  p.first_position = 1;
  EXPECT_EQ(refusal(p),
            "the bias profile covers query positions 1 .. 10, but the call has "
            "0 .. 9");
  p = ExampleProfile();
  p.row_gain[3] = INFINITY;
  EXPECT_EQ(refusal(p),
            "the bias profile holds a value that is not finite: inf");
  p = ExampleProfile();
  p.knots = {0.5, 0.25};
  EXPECT_EQ(refusal(p),
            "the knots of a bias profile must ascend, got 0.25 after 0.5");
  p.knots = {0.5, NAN};
  EXPECT_EQ(refusal(p),
            "the knots of a bias profile must ascend, got nan after 0.5");
}

TEST(TermsTest, NamesFollowTheOrderOfTheComputation) {
  EXPECT_EQ(
      TermNames(Everything()),
      (std::vector<std::string>{"input_add", "rotate", "extra_dot", "q_table",
                                "k_table", "bias", "v_table"}));
  EXPECT_TRUE(TermNames(Terms{}).empty());
}

TEST(TermsTest, DescribesEveryTerm) {
  Terms t = Everything();
  t.input_add->widen = 1;
  t.scale = {.scale = 0.5, .rows = RandomTensor({4, 10}, 9)};
  t.rotate->gain = 1.5;
  t.rotate->axes = {{}, {.divisor = 2}};
  t.rotate->log_decay = {-1, -1, -1};
  t.rotate->angles = AngleMode::kFloat32;
  EXPECT_EQ(
      Describe(t),
      "input_add  x += E[pos]  table f64 [12, 32] from position -2, x widened "
      "by 1\n"
      "scale      0.5 * g[h, pos]  rows f64 [4, 10] from position 0\n"
      "rotate     rot(q).rot(k)  6 of the channels from 2, pairs of halves, "
      "theta 1 .. 0.25, gain 1.5, 2 axes, decays with the offset, float32 "
      "angles\n"
      "extra_dot  a_i.c_j  rows f64 [4, 10, 3] and f64 [1, 10, 3]\n"
      "q_table    q.Tq[b]  rows f64 [4, 7, 8]; 7 buckets, constant below "
      "offset -3 and from 3 on\n"
      "k_table    k.Tk[b]  rows f64 [4, 7, 8]; 7 buckets, constant below "
      "offset -3 and from 3 on\n"
      "bias       B[h, b]  table f64 [1, 7]; 7 buckets, constant below offset "
      "-3 and from 3 on\n"
      "v_table    p Tv[b]  rows f64 [1, 19, 5]; 19 buckets, one per offset in "
      "[-9, 9]\n");
  t = Terms{};
  t.bias = BiasRamp{{0.5, 0.25}, {0, 1}};
  EXPECT_EQ(Describe(t),
            "scale      1\n"
            "bias       B[h, b]  ramp, slopes past [0.5, 0.25], future [0, "
            "1]\n");
  t.bias = ExampleProfile();
  EXPECT_EQ(Describe(t),
            "scale      1\n"
            "bias       B[h, b]  profile of 3 linear pieces for 4 heads\n");
}

TEST(TermsTest, ZeroGradsMirrorTheTerms) {
  Terms t = Everything();
  const TermGrads g = ZeroGrads(t);
  EXPECT_EQ(g.input_add.Describe(), "f64 [12, 32]");
  EXPECT_EQ(g.extra_dot->q_rows.Describe(), "f64 [4, 10, 3]");
  EXPECT_EQ(g.extra_dot->k_rows.Describe(), "f64 [1, 10, 3]");
  EXPECT_EQ(g.q_table.Describe(), "f64 [4, 7, 8]");
  EXPECT_EQ(g.k_table.Describe(), "f64 [4, 7, 8]");
  EXPECT_EQ(g.v_table.Describe(), "f64 [1, 19, 5]");
  EXPECT_EQ(std::get<BiasTableGrads>(*g.bias).values.Describe(), "f64 [1, 7]");
  for (double value : g.q_table.ToVector()) EXPECT_EQ(value, 0.0);

  t.bias = BiasRamp{{1, 2}, {3, 4}};
  const auto ramp = std::get<BiasRampGrads>(*ZeroGrads(t).bias);
  EXPECT_EQ(ramp.past, (std::vector<double>{0, 0}));
  EXPECT_EQ(ramp.future, (std::vector<double>{0, 0}));
  t.bias = ExampleProfile();
  const auto profile = std::get<BiasProfileGrads>(*ZeroGrads(t).bias);
  EXPECT_EQ(profile.distance, std::vector<double>(10, 0.0));
  EXPECT_EQ(profile.row_gain, std::vector<double>(10, 0.0));
  EXPECT_EQ(profile.base.Describe(), "f64 [4, 3]");
  EXPECT_EQ(profile.slope.Describe(), "f64 [4, 3]");

  const TermGrads none = ZeroGrads(Terms{});
  EXPECT_FALSE(none.input_add.defined() || none.q_table.defined() ||
               none.k_table.defined() || none.v_table.defined());
  EXPECT_FALSE(none.extra_dot || none.bias);
}

TEST(TermsTest, TemperatureGrowsBySteps) {
  const Scale plain{.scale = 0.25};
  EXPECT_EQ(plain.At(0, 1'000'000), 0.25);
  Shape shape = ExampleShape();
  shape.min_q_pos = 3;
  shape.max_q_pos = 40;
  Scale s{.scale = 0.5};
  QueryTemperature{.beta = 0.1, .shift = 1, .span = 4}.Set(shape, s);
  for (int64_t m = 3; m <= 40; ++m) {
    const double steps = std::floor((static_cast<double>(m) + 1.0) / 4.0);
    EXPECT_DOUBLE_EQ(s.At(2, m), 0.5 * (1.0 + 0.1 * std::log(1.0 + steps)));
  }
}

TEST(TermsTest, BiasAtEvaluatesEachForm) {
  const Tensor values = RandomTensor({2, 7}, 1);
  const Bias table = BiasTable{values, BucketMap::Clip(-3, 3)};
  const Bias shared =
      BiasTable{RandomTensor({1, 7}, 2), BucketMap::Clip(-3, 3)};
  const Bias ramp = BiasRamp{{0.5, 0.25}, {2.0, 0.0}};
  for (int64_t m = -6; m <= 6; ++m) {
    const int64_t bucket = std::clamp<int64_t>(m, -3, 3) + 3;
    for (int64_t h : {0, 1}) {
      EXPECT_EQ(BiasAt(table, h, 100 + m, 100), values.At(h, bucket));
      EXPECT_EQ(BiasAt(shared, h, m, 0), BiasAt(shared, 0, m, 0));
      const double slope =
          m >= 0 ? (h == 0 ? 0.5 : 0.25) : (h == 0 ? 2.0 : 0.0);
      EXPECT_EQ(BiasAt(ramp, h, m, 0),
                -slope * std::abs(static_cast<double>(m)));
    }
  }
  // Two pieces that meet at 1: x = u(|m - n|) g(m).
  const Tensor base = Tensor::From({1, 2}, std::vector<double>{10.0, 20.0});
  const Tensor slope = Tensor::From({1, 2}, std::vector<double>{1.0, -2.0});
  const BiasProfile profile{.distance = {0.0, 0.5, 1.0, 3.0},
                            .row_gain = {1.0, 2.0},
                            .first_position = 5,
                            .knots = {1.0},
                            .base = base,
                            .slope = slope};
  EXPECT_EQ(BiasAt(profile, 0, 5, 6), 10.5);
  EXPECT_EQ(BiasAt(profile, 3, 5, 3), 20.0 - 2.0) << "a knot belongs above";
  EXPECT_EQ(BiasAt(profile, 0, 6, 3), 20.0 - 12.0);
  EXPECT_EQ(BiasAt(profile, 0, 6, 6), 10.0);
}

TEST(TermsTest, ShapesOfSelfAttention) {
  const Shape s = Shape::SelfAttention(4, 16, 10, /*causal=*/true);
  EXPECT_EQ(s.min_offset, 0);
  EXPECT_EQ(s.max_offset, 9);
  EXPECT_EQ(s.MaxPosition(), 9);
  EXPECT_EQ(s.MinPosition(), 0);
  EXPECT_EQ(Shape::SelfAttention(4, 16, 10).min_offset, -9);
  EXPECT_EQ(Shape::SelfAttention(4, 16, 0).max_offset, 0);
  EXPECT_EQ(s.ScaleOr(), 0.25);
  EXPECT_EQ(s.ScaleOr(/*factor=*/4.0), 0.125);
  Shape given = s;
  given.scale = 3.0;
  EXPECT_EQ(given.ScaleOr(4.0), 3.0);
}

}  // namespace
}  // namespace locus::testing
