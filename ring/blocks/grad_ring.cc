#include "ring/blocks/grad_ring.h"

#include <fmt/format.h>

#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

constexpr std::string_view kTaken = "another rank to take gradients";

}  // namespace

KeyGrads KeyGrads::Make(const Call& call, int owner,
                        Tensor (*make)(DType, std::vector<int64_t>)) {
  const int64_t tokens = call.key_counts[static_cast<size_t>(owner)];
  const auto rows = [&](int64_t dim) {
    return make(DType::kF32, {call.batch, call.shape.kv_heads, tokens, dim});
  };
  KeyGrads grads;
  grads.d_k = rows(call.shape.head_dim);
  grads.d_v = rows(call.ValueDim());
  if (call.key_bias.given()) {
    grads.key_bias =
        make(DType::kF32, {call.key_bias.batch, call.key_bias.heads, tokens});
  }
  return grads;
}

void KeyGrads::Add(const KeyGrads& share) {
  AddTo(share.d_k, d_k);
  AddTo(share.d_v, d_v);
  if (key_bias.defined()) AddTo(share.key_bias, key_bias);
}

void KeyGrads::Add(const AttentionGrads& part, const Chunk& keys) {
  AddTo(part.d_k, TokensOf(d_k, keys));
  AddTo(part.d_v, TokensOf(d_v, keys));
  if (key_bias.defined()) {
    AddTo(part.operands.key_bias, TokensOf(key_bias, keys));
  }
}

GradRing::GradRing(const Call& call, AsyncTransport& transport, Neighbours ring)
    : call_(call), transport_(transport), ring_(ring) {
  const int hops = HopsOf(ring.rank);
  if (hops == 0) return;
  last_ = (ring.rank + hops) % ring.size;
  home_ = KeyGrads::Empty(call, ring.rank);
  coming_home_ = transport.Receive(home_.ToMessage(), last_, kHomeTag);
}

void GradRing::Begin(int step) {
  if (step < 2) return;
  sum_ = KeyGrads::Empty(call_, ring_.Owner(step));
  receiving_ = transport_.Receive(sum_.ToMessage(), ring_.Left(), kGradTag);
}

void GradRing::End(int step, const KeyGrads& share) {
  if (step == 1) {
    sum_ = share;
  } else {
    transport_.Wait(receiving_,
                    fmt::format("gradients from rank {}", ring_.Left()));
    sum_.Add(share);
  }
  transport_.Wait(sending_, kTaken);
  const int owner = ring_.Owner(step);
  sending_ = step < HopsOf(owner)
                 ? transport_.Send(sum_.ToMessage(), ring_.Right(), kGradTag)
                 : transport_.Send(sum_.ToMessage(), owner, kHomeTag);
}

KeyGrads GradRing::Finish(const KeyGrads& own) {
  transport_.Wait(sending_, kTaken);
  if (coming_home_ == nullptr) return own;
  transport_.Wait(coming_home_, fmt::format("gradients from rank {}", last_));
  home_.Add(own);
  return home_;
}

}  // namespace locus::ring
