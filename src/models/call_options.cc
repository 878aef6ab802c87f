// CallOptions: turns the facts of a layer into options of a call.
//
// A query at m sees the keys n <= m of its own chunk, floor(m / C) = floor(n /
// C): expressed as segments by chunk or, for a single m, as the window 0 <= m -
// n <= m mod C.
#include <algorithm>

#include "core/fail.h"
#include "locus/models.h"

namespace locus::models {
namespace {

// Floor division; chunk > 0.
int64_t ChunkOf(int64_t position, int64_t chunk) {
  const int64_t quotient = position / chunk;
  return position % chunk < 0 ? quotient - 1 : quotient;
}

// The given positions, or `length` consecutive ones from `first` on.
std::vector<int64_t> PositionsOf(const char* name,
                                 std::span<const int64_t> given, int64_t length,
                                 int64_t first) {
  if (length < 1) Fail("{} must be at least 1, got {}", name, length);
  if (given.empty()) {
    std::vector<int64_t> counted(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) {
      counted[static_cast<size_t>(i)] = first + i;
    }
    return counted;
  }
  if (given.size() % static_cast<size_t>(length) != 0) {
    Fail("{} = {}, but there are {} positions", name, length, given.size());
  }
  return {given.begin(), given.end()};
}

AttentionOptions Plain(const LayerPosition& layer) {
  AttentionOptions options;
  options.causal = layer.causal;
  options.scale = layer.scale;
  options.window = layer.window;
  options.softcap = layer.softcap;
  return options;
}

// Throws Error for a layer without attention.
void CheckAttends(const LayerPosition& layer) {
  if (layer.attends) return;
  Fail("layer {} of {} has {}, and so no call", layer.layer, layer.family,
       layer.attention.words);
}

}  // namespace

AttentionOptions LayerPosition::CallOptions() const {
  CheckAttends(*this);
  if (chunk != 0) {
    Fail(
        "layer {} of {} attends in chunks of {} positions, so its options need "
        "the lengths or the positions of the call's tokens",
        layer, family, chunk);
  }
  return Plain(*this);
}

TokenOptions LayerPosition::CallOptions(const CallTokens& tokens) const {
  CheckAttends(*this);
  TokenOptions call;
  call.options = Plain(*this);
  call.options.q_positions = tokens.q_positions;
  call.options.k_positions = tokens.k_positions;
  if (chunk == 0) return call;
  std::vector<int64_t> q =
      PositionsOf("q_len", tokens.q_positions, tokens.q_len,
                  /*first=*/std::max<int64_t>(tokens.k_len - tokens.q_len, 0));
  std::vector<int64_t> k =
      PositionsOf("k_len", tokens.k_positions, tokens.k_len, /*first=*/0);
  if (causal && std::ranges::all_of(q, [&](int64_t m) { return m == q[0]; })) {
    const int64_t past = q[0] - ChunkOf(q[0], chunk) * chunk;
    call.options.window =
        Window{.left = window ? std::min(window->left, past) : past,
               .right = window ? window->right : 0};
    return call;
  }
  for (auto* positions : {&q, &k}) {
    for (int64_t& position : *positions) position = ChunkOf(position, chunk);
  }
  call.q_segments = std::move(q);
  call.k_segments = std::move(k);
  call.options.q_segments = call.q_segments;
  call.options.k_segments = call.k_segments;
  return call;
}

}  // namespace locus::models
