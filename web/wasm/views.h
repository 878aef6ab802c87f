// What the explorer draws beyond the pictures of the tool: scores of pairs of
// tokens, rotated pairs of channels, and what a model's rotation does.
#ifndef LOCUS_WEB_WASM_VIEWS_H_
#define LOCUS_WEB_WASM_VIEWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cli/answers/answers.h"
#include "cli/answers/explain.h"

namespace locus::web {

using cli::Chosen;
using cli::Json;

// An encoding that the page asks about.
struct Subject {
  Chosen chosen;
  // The example of `chosen`, or the same with trained parameters.
  std::shared_ptr<const Encoding> encoding = {};
  bool trained = false;
};

// What tokens contain.
enum class Content : uint8_t {
  kMatching,  // one vector everywhere: keys equal queries
  kRandom,    // each token its own
  kNone,      // zeros: what position adds by itself
};

struct ScoreRequest {
  int64_t head = 0;
  int64_t first = 0;  // position of the first token
  int64_t count = 0;  // tokens
  Content content = Content::kMatching;
  std::vector<int64_t> words = {};  // random content by word; empty: by token
  bool causal = false;
};

// What `locus show` answers.
Json Show(const Subject& subject);

// What `locus check` answers.
Json Check(const Subject& subject);

// {logits, weights}: [count][count] of one head. An encoding of the input is
// added to the tokens, which are then queries and keys themselves.
Json Scores(const Subject& subject, const ScoreRequest& request);

// {x, mean, low, high}: the logit by offset m - n over random contents and
// two query positions; low and high are the ends of their range.
Json ByDistance(const Subject& subject, int64_t head, Content content);

// {layout, pairs: [{first, second, wavelength}], at: [{position, cos, sin}]} of
// a rotation; null without one.
Json Pairs(const Subject& subject, const std::vector<int64_t>& positions);

// Of a layer that rotates: {wavelengths, angles: {positions, error}, layout:
// {offsets, right, wrong, change}}, else null. `error` is the largest error of
// a cosine or sine whose angle was rounded to float32, `wrong` the logits of
// the same queries and keys with the other pair layout.
Json RotationFacts(const models::LayerPosition& position);

}  // namespace locus::web

#endif  // LOCUS_WEB_WASM_VIEWS_H_
