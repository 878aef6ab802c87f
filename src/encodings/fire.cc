// FIRE: functional interpolation for relative position encoding.
//
//   x = psi(|m - n|) / (psi(max(m, L)) + eps),   psi(d) = ln(|c| d + 1)
//   s = scale * q.k + f_h(x),   f_h(x) = b2_h + sum_u W2_hu relu(w1_u x + b1_u)
//
// Distances are measured against the query's own position, so that x stays in
// [0, 1] at any length; below the threshold L they are measured against L.
// A network of relus in one variable is piecewise linear, so f lowers exactly
// to a bias profile: one knot where each hidden unit switches.
// Li et al., "Functional Interpolation for Relative Positions Improves Long
// Context Transformers" (2024).
#include "locus/encodings/fire.h"

#include <algorithm>
#include <cmath>

#include "encodings/common.h"

namespace locus {
namespace {

double Psi(double c, double x) { return std::log1p(std::abs(c) * x); }

// d psi / d c
double PsiByC(double c, double x) {
  return std::copysign(x / (std::abs(c) * x + 1.0), c);
}

// The values x > 0 at which hidden units switch, ascending. A quotient that
// overflows lies beyond every x.
std::vector<double> Knots(const FireParams& p) {
  std::vector<double> knots;
  for (int64_t u = 0; u < p.w1.size(0); ++u) {
    if (p.w1.At(u) == 0.0) continue;
    const double knot = -p.b1.At(u) / p.w1.At(u);
    if (knot > 0.0 && std::isfinite(knot)) knots.push_back(knot);
  }
  std::ranges::sort(knots);
  knots.erase(std::unique(knots.begin(), knots.end()), knots.end());
  return knots;
}

// A point inside segment s.
double Inside(const std::vector<double>& knots, size_t s) {
  if (knots.empty()) return 1.0;
  if (s == 0) return 0.5 * knots[0];
  if (s == knots.size()) return 2.0 * knots.back();
  return 0.5 * (knots[s - 1] + knots[s]);
}

// Calls visit(u, s) for every hidden unit u that is active in segment s.
template <typename Visit>
void ForActive(const FireParams& p, const std::vector<double>& knots,
               const Visit& visit) {
  for (size_t s = 0; s <= knots.size(); ++s) {
    const double x = Inside(knots, s);
    for (int64_t u = 0; u < p.w1.size(0); ++u) {
      if (p.w1.At(u) * x + p.b1.At(u) > 0.0) visit(u, static_cast<int64_t>(s));
    }
  }
}

}  // namespace

Fire::Fire(FireParams params, double epsilon)
    : params_(std::move(params)), epsilon_(epsilon) {
  const FireParams& p = params_;
  if (p.w1.rank() != 1 || p.b1.shape() != p.w1.shape() || p.w2.rank() != 2 ||
      p.w2.size(1) != p.w1.size(0) || p.b2.rank() != 1 ||
      p.b2.size(0) != p.w2.size(0) || p.w2.NumElements() == 0) {
    Fail(
        "FIRE needs w1, b1 [width], w2 [heads, width] and b2 [heads], got {}, "
        "{}, {} and {}",
        p.w1.Describe(), p.b1.Describe(), p.w2.Describe(), p.b2.Describe());
  }
  for (const Tensor* scalar : {&p.c, &p.threshold}) {
    if (scalar->NumElements() != 1 || scalar->rank() != 1) {
      Fail("FIRE's c and threshold must be [1], got {}", scalar->Describe());
    }
  }
  for (const Tensor* t : {&p.w1, &p.b1, &p.w2, &p.b2, &p.c, &p.threshold}) {
    CheckFinite("FIRE's parameter", *t);
  }
  if (!std::isfinite(epsilon) || epsilon < 0.0) {
    Fail("FIRE's epsilon must be finite and not negative, got {}", epsilon);
  }
  if (p.c.At(0) == 0.0 || p.threshold.At(0) == 0.0) {
    Fail("FIRE's c and threshold must not be 0, got {} and {}", p.c.At(0),
         p.threshold.At(0));
  }
}

Lowered Fire::Lower(const Shape& shape) const {
  const FireParams& p = params_;
  CheckCallHeads("FIRE", p.w2.size(0), shape);
  const double c = p.c.At(0);
  const double threshold = std::abs(p.threshold.At(0));

  BiasProfile profile;
  const int64_t reach =
      std::max(std::abs(shape.min_offset), std::abs(shape.max_offset));
  CheckSpan("the distances of FIRE", 0, reach);
  CheckSpan("the query positions of FIRE", shape.min_q_pos, shape.max_q_pos);
  for (int64_t d = 0; d <= reach; ++d) {
    profile.distance.push_back(Psi(c, static_cast<double>(d)));
  }
  profile.first_position = shape.min_q_pos;
  for (int64_t m = shape.min_q_pos; m <= shape.max_q_pos; ++m) {
    const double against = std::max(static_cast<double>(m), threshold);
    profile.row_gain.push_back(1.0 / (Psi(c, against) + epsilon_));
  }

  profile.knots = Knots(p);
  const int64_t heads = p.w2.size(0);
  const int64_t segments = static_cast<int64_t>(profile.knots.size()) + 1;
  profile.base = Tensor::Zeros(DType::kF64, {heads, segments});
  profile.slope = Tensor::Zeros(DType::kF64, {heads, segments});
  double* base = profile.base.MutableData<double>();
  double* slope = profile.slope.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    std::fill_n(base + h * segments, segments, p.b2.At(h));
  }
  ForActive(p, profile.knots, [&](int64_t u, int64_t s) {
    for (int64_t h = 0; h < heads; ++h) {
      base[h * segments + s] += p.w2.At(h, u) * p.b1.At(u);
      slope[h * segments + s] += p.w2.At(h, u) * p.w1.At(u);
    }
  });

  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = std::move(profile);
  return lowered;
}

std::vector<Param> Fire::Params() const {
  const FireParams& p = params_;
  return {{"w1", p.w1}, {"b1", p.b1}, {"w2", p.w2},
          {"b2", p.b2}, {"c", p.c},   {"threshold", p.threshold}};
}

std::unique_ptr<Encoding> Fire::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<Fire>(FireParams{.w1 = values[0],
                                           .b1 = values[1],
                                           .w2 = values[2],
                                           .b2 = values[3],
                                           .c = values[4],
                                           .threshold = values[5]},
                                epsilon_);
}

ParamGrads Fire::PullBack(const Shape& shape, const TermGrads& grads) const {
  const FireParams& p = params_;
  const auto& d = std::get<BiasProfileGrads>(*grads.bias);
  const int64_t heads = p.w2.size(0), width = p.w1.size(0);
  std::vector<double> d_w1(static_cast<size_t>(width));
  std::vector<double> d_b1(static_cast<size_t>(width));
  std::vector<double> d_w2(static_cast<size_t>(heads * width));
  std::vector<double> d_b2(static_cast<size_t>(heads));
  // base_hs = b2_h + sum_active W2_hu b1_u,  slope_hs = sum_active W2_hu w1_u
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t s = 0; s < d.base.size(1); ++s) {
      d_b2[static_cast<size_t>(h)] += d.base.At(h, s);
    }
  }
  ForActive(p, Knots(p), [&](int64_t u, int64_t s) {
    const size_t unit = static_cast<size_t>(u);
    for (int64_t h = 0; h < heads; ++h) {
      d_w2[static_cast<size_t>(h * width + u)] +=
          d.base.At(h, s) * p.b1.At(u) + d.slope.At(h, s) * p.w1.At(u);
      d_b1[unit] += d.base.At(h, s) * p.w2.At(h, u);
      d_w1[unit] += d.slope.At(h, s) * p.w2.At(h, u);
    }
  });

  const double c = p.c.At(0);
  const double threshold = std::abs(p.threshold.At(0));
  double d_c = 0.0;
  double d_threshold = 0.0;
  // distance[n] = psi(n)
  for (size_t n = 0; n < d.distance.size(); ++n) {
    d_c += d.distance[n] * PsiByC(c, static_cast<double>(n));
  }
  // row_gain[m] = 1 / (psi(max(m, L)) + eps)
  for (size_t r = 0; r < d.row_gain.size(); ++r) {
    const double m =
        static_cast<double>(shape.min_q_pos) + static_cast<double>(r);
    const double against = std::max(m, threshold);
    const double gain = 1.0 / (Psi(c, against) + epsilon_);
    const double d_psi = -gain * gain * d.row_gain[r];
    d_c += d_psi * PsiByC(c, against);
    if (m < threshold) {
      d_threshold += d_psi * std::abs(c) / (std::abs(c) * threshold + 1.0);
    }
  }
  d_threshold = std::copysign(1.0, p.threshold.At(0)) * d_threshold;
  return {{"w1", Tensor::From({width}, d_w1)},
          {"b1", Tensor::From({width}, d_b1)},
          {"w2", Tensor::From({heads, width}, d_w2)},
          {"b2", Tensor::From({heads}, d_b2)},
          {"c", Tensor::From({1}, std::vector<double>{d_c})},
          {"threshold", Tensor::From({1}, std::vector<double>{d_threshold})}};
}

namespace {

constexpr Field kFireFields[] = {
    {.name = "w1",
     .type = FieldType::kTable,
     .shape = "width",
     .sentence = "weights of the hidden units"},
    {.name = "b1",
     .type = FieldType::kTable,
     .shape = "width",
     .sentence = "their biases"},
    {.name = "w2",
     .type = FieldType::kTable,
     .shape = "heads, width",
     .sentence = "weights of the outputs"},
    {.name = "b2",
     .type = FieldType::kTable,
     .shape = "heads",
     .sentence = "their biases"},
    {.name = "c",
     .type = FieldType::kTable,
     .shape = "1",
     .sentence = "of psi(x) = ln(|c x| + 1)"},
    {.name = "threshold",
     .type = FieldType::kTable,
     .shape = "1",
     .sentence = "below it distances are divided by psi(threshold)"},
    {.name = "epsilon",
     .type = FieldType::kReal,
     .fallback = "1e-06",
     .sentence = "added to the divisor"}};
constexpr Field kFireOptions[] = {
    {.name = "width",
     .fallback = "32",
     .sentence = "hidden units",
     .slider = {1, 256, 2, /*logarithmic=*/true}},
    {.name = "c",
     .type = FieldType::kReal,
     .fallback = "0.1",
     .sentence = "of psi(x) = ln(|c x| + 1)",
     .slider = {0.001, 10, 10, /*logarithmic=*/true}},
    {.name = "threshold",
     .type = FieldType::kReal,
     .fallback = "None",
     .optional = true,
     .sentence =
         "below it distances are divided by psi(threshold); the trained "
         "length unless given",
     .slider = {1, 4096, 2, /*logarithmic=*/true}}};
// The network is initialised as a linear layer, c and L as in the paper.
constexpr ParamTraining kFireTraining[] = {
    {.name = "w1", .start = Start::kUniform, .size = 1.0},
    {.name = "b1", .start = Start::kUniform, .size = 1.0},
    {.name = "w2", .start = Start::kFanIn},
    {.name = "b2"},
    {.name = "c"},
    {.name = "threshold"}};

}  // namespace

LOCUS_DESCRIPTOR(Fire) = {
    .name = "fire",
    .class_name = "Fire",
    .title = "FIRE functional bias",
    .formula = "s = scale q.k + f_h(psi(|m - n|) / psi(max(m, L)))",
    .summary =
        "Li et al. (2024): s + f(psi(m - n) / psi(max(m, threshold))) with "
        "psi(x) "
        "= ln(|c x| + 1) and f(x) = w2 relu(w1 x + b1) + b2.",
    .paper =
        "Li et al., Functional Interpolation for Relative Positions "
        "Improves Long Context Transformers, 2024",
    .models = "research",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "distances are rescaled into the trained range",
    .picture = Picture::kBias,
    .fields = kFireFields,
    .options = kFireOptions,
    .training = kFireTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Fire>(
          FireParams{.w1 = f.Table("w1"),
                     .b1 = f.Table("b1"),
                     .w2 = f.Table("w2"),
                     .b2 = f.Table("b2"),
                     .c = f.Table("c"),
                     .threshold = f.Table("threshold")},
          f.Real("epsilon"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      return {{"epsilon", static_cast<const Fire&>(encoding).epsilon()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const int64_t width = o.Int("width");
      CheckSize("fire option width", width);
      const double threshold = o.Has("threshold")
                                   ? o.Real("threshold")
                                   : static_cast<double>(config.length);
      return {{"w1", RandomTable({width}, 1.0, config.seed)},
              {"b1", RandomTable({width}, 0.5, config.seed + 1)},
              {"w2", RandomTable({config.heads, width}, 0.5, config.seed + 2)},
              {"b2", RandomTable({config.heads}, 0.1, config.seed + 3)},
              {"c", Tensor::From({1}, std::vector<double>{o.Real("c")})},
              {"threshold", Tensor::From({1}, std::vector<double>{threshold})}};
    },
};

}  // namespace locus
