#include "ring/blocks/kv_ring.h"

#include <fmt/format.h>

namespace locus::ring {

std::shared_ptr<Block> KvRing::Begin(int step) {
  const auto goes_on = [&](int owner) {
    return call_.hops[static_cast<size_t>(owner)] > step;
  };
  const int coming = ring_.Owner(step + 1);
  next_ = nullptr;
  if (step + 1 < ring_.size && goes_on(coming)) {
    next_ = EmptyBlock(call_, coming, dtype_);
    receiving_ = transport_.Receive(ToMessage(next_), ring_.Left(), kBlockTag);
  }
  if (here_ != nullptr && goes_on(here_->owner)) {
    sending_ = transport_.Send(ToMessage(here_), ring_.Right(), kBlockTag);
  }
  return here_;
}

void KvRing::End() {
  transport_.Wait(receiving_,
                  fmt::format("keys and values from rank {}", ring_.Left()));
  transport_.Wait(
      sending_, fmt::format("rank {} to take keys and values", ring_.Right()));
  receiving_ = sending_ = nullptr;
  here_ = std::move(next_);
}

}  // namespace locus::ring
