// Fields of published configs, typed in, and their expected results.
#ifndef LOCUS_TESTS_MODELS_PUBLISHED_H_
#define LOCUS_TESTS_MODELS_PUBLISHED_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "locus/models.h"

namespace locus::models {

struct Published {
  const char* model;
  const char* json;
  int64_t layer;
  const char* part;
  const char* position;  // PositionFacts
  const char* call;      // CallFacts
};

// "rope halves 32 of 128 base 10000", with "+ learned" if the input has a
// table.
inline std::string PositionFacts(const LayerPosition& p) {
  std::string facts = p.attention.name;
  if (p.rotary) {
    const RotaryFacts& r = *p.rotary;
    facts +=
        fmt::format(" {} {} of {} base {}",
                    r.layout == PairLayout::kHalves ? "halves" : "interleaved",
                    r.rotary_dim, p.head_dim, r.base);
    if (r.first_channel != 0) facts += fmt::format(" from {}", r.first_channel);
    if (r.scaling != "none")
      facts += fmt::format(" {} {}", r.scaling, r.factor);
    if (r.original_length != 0)
      facts += fmt::format(" of {}", r.original_length);
    if (r.gain != 1.0) facts += fmt::format(" gain {:.7g}", r.gain);
  }
  if (p.input.name != "none") facts += " + " + p.input.name;
  for (const Scheme* s : {&p.attention, &p.input}) {
    if (!s->tensors.empty()) {
      facts += fmt::format(" {} {}", s->tensors[0].name,
                           fmt::join(s->tensors[0].shape, "x"));
    }
  }
  return facts;
}

// "32/8 heads, d 128, causal, length 8192": a scale is given as 1/scale^2.
inline std::string CallFacts(const LayerPosition& p) {
  std::string facts =
      fmt::format("{}/{} heads, d {:.6g}, {}, length {}", p.q_heads, p.kv_heads,
                  1.0 / (p.scale * p.scale), p.causal ? "causal" : "both ways",
                  p.trained_length);
  if (p.window) {
    facts += fmt::format(", window {}+{}", p.window->left, p.window->right);
  }
  if (p.chunk != 0) facts += fmt::format(", chunk {}", p.chunk);
  if (p.softcap) facts += fmt::format(", cap {}", *p.softcap);
  if (p.softmax_factor != 1.0) {
    facts += fmt::format(", softmax {:.7g}", p.softmax_factor);
  }
  if (p.temperature.beta != 0.0) {
    facts += fmt::format(", temperature {} {} {}", p.temperature.beta,
                         p.temperature.shift, p.temperature.span);
  }
  return facts;
}

inline void CheckPublished(const std::vector<Published>& list) {
  for (const Published& m : list) {
    SCOPED_TRACE(fmt::format("{} layer {} {}", m.model, m.layer, m.part));
    try {
      const LayerPosition p =
          FromConfig(m.json, ReadOptions{.layer = m.layer, .part = m.part});
      EXPECT_EQ(PositionFacts(p), m.position);
      EXPECT_EQ(CallFacts(p), m.call);
      // Every scheme can be built or lists the tensors it is made of.
      for (const Scheme* s : {&p.attention, &p.input}) {
        if (s->name == "none") continue;
        EXPECT_TRUE(s->encoding || (s->build && !s->tensors.empty()));
        EXPECT_FALSE(s->words.empty());
      }
      if (p.rotary && p.rotary->scaling == "none") {
        const double r = static_cast<double>(p.rotary->rotary_dim);
        for (size_t i = 0; i < p.rotary->theta.size(); ++i) {
          const double exact = std::exp(-2.0 * static_cast<double>(i) / r *
                                        std::log(p.rotary->base));
          // exp and log each round once: a few ulps of float64.
          EXPECT_NEAR(p.rotary->theta[i], exact, 1e-14 * exact);
        }
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

}  // namespace locus::models

#endif  // LOCUS_TESTS_MODELS_PUBLISHED_H_
