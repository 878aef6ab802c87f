// Calls cut into the shards of ranks, and compared with the whole.
#ifndef LOCUS_TESTS_RING_RANKS_H_
#define LOCUS_TESTS_RING_RANKS_H_

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/compare.h"
#include "locus/ring.h"

namespace locus::testing {

inline constexpr ring::Sharding kShardings[] = {ring::Sharding::kContiguous,
                                                ring::Sharding::kZigzag,
                                                ring::Sharding::kRoundRobin};

// Half a unit in the last place of what a result of the type is rounded to,
// relative to numbers of the size of 1.
inline double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0.0;
  }
}

// Per-token numbers [B * L] of the tokens in `chunks`, [B * n].
inline std::vector<int64_t> TakeIds(const std::vector<int64_t>& ids,
                                    int64_t batch,
                                    const std::vector<ring::Chunk>& chunks) {
  std::vector<int64_t> taken;
  if (ids.empty()) return taken;
  const int64_t length = static_cast<int64_t>(ids.size()) / batch;
  for (int64_t b = 0; b < batch; ++b) {
    for (const ring::Chunk& chunk : chunks) {
      for (int64_t i = 0; i < chunk.count; ++i) {
        taken.push_back(ids[static_cast<size_t>(b * length + chunk.first +
                                                i * chunk.stride)]);
      }
    }
  }
  return taken;
}

// This rank's part of a call.
struct RankCall {
  Call call;
  Tensor d_out;
  std::vector<ring::Chunk> queries, keys;
  ring::Options options;

  RankCall(const Call& whole, const Tensor& whole_d_out,
           std::vector<ring::Chunk> q_chunks, std::vector<ring::Chunk> k_chunks,
           ring::Sharding sharding)
      : call(whole), queries(std::move(q_chunks)), keys(std::move(k_chunks)) {
    const int64_t batch = whole.q.size(0);
    call.q = ring::TakeShard(whole.q, queries);
    call.k = ring::TakeShard(whole.k, keys);
    call.v = ring::TakeShard(whole.v, keys);
    d_out = ring::TakeShard(whole_d_out, queries);
    call.q_pos = TakeIds(whole.q_pos, batch, queries);
    call.k_pos = TakeIds(whole.k_pos, batch, keys);
    call.q_seg = TakeIds(whole.q_seg, batch, queries);
    call.k_seg = TakeIds(whole.k_seg, batch, keys);
    options.attention = call.Options();
    options.attention.return_lse = true;
    options.attention.threads = 1;
    options.sharding = sharding;
    options.deadline_seconds = 60.0;
  }
  RankCall(const RankCall&) = delete;  // options point into the call
  RankCall& operator=(const RankCall&) = delete;
};

// What one process gives, in float64.
struct Expected {
  reference::Forward forward;
  EncodingGrads grads;
  Tensor d_out;

  Expected(const Call& call, const Encoding& encoding) {
    const AttentionOptions options = call.Options();
    forward = reference::Attention(call.q, call.k, call.v, encoding, options);
    d_out = RandomTensor(forward.out.shape(), 5).To(call.q.dtype());
    grads = reference::AttentionBackward(d_out, call.q, call.k, call.v,
                                         encoding, options);
  }
};

struct RingResult {
  AttentionResult forward;
  EncodingGrads grads;
};

inline RingResult RunRing(const RankCall& mine, const Encoding& encoding) {
  RingResult result;
  const Call& c = mine.call;
  result.forward =
      ring::Attention(MPI_COMM_WORLD, c.q, c.k, c.v, encoding, mine.options);
  result.grads =
      ring::AttentionBackward(MPI_COMM_WORLD, mine.d_out, c.q, c.k, c.v,
                              result.forward, encoding, mine.options);
  return result;
}

// Rows of lse [B, H, L] as [B, H, L, 1], so that they can be cut.
inline Tensor AsRows(const Tensor& lse) {
  return Tensor::Borrow(lse.dtype(), {lse.size(0), lse.size(1), lse.size(2), 1},
                        {}, lse.Raw());
}

// The largest of the finite elements, without its sign.
inline double LargestFinite(const Tensor& x) {
  double largest = 0.0;
  for (double value : x.ToVector()) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// The bound of the engine's own tests against float64, the rounding of a narrow
// type, and what joining adds: parts are weighed by their lse, numbers of
// float32, and half a unit of two of them is that much of a weight.
inline void ExpectEqualsWhole(const RankCall& mine, const Expected& expected,
                              const Call& whole, const RingResult& actual) {
  const double rounding = RoundingOf(whole.q.dtype());
  const double joining = LargestFinite(expected.forward.lse) * kEps;
  const double forward = ForwardTolerance(whole) + rounding + joining;
  // The forward's rounded out enters each gradient once, d_out and the result
  // are rounded besides.
  const double backward = GradTolerance(whole) + 4.0 * rounding;
  const auto part = [](const Tensor& x, const std::vector<ring::Chunk>& of) {
    return ring::TakeShard(x, of);
  };
  EXPECT_LE(RelativeError(actual.forward.out,
                          part(expected.forward.out, mine.queries)),
            forward);
  EXPECT_LE(RelativeError(AsRows(actual.forward.lse),
                          part(AsRows(expected.forward.lse), mine.queries)),
            ForwardTolerance(whole));
  EXPECT_LE(
      RelativeError(actual.grads.d_q, part(expected.grads.d_q, mine.queries)),
      backward);
  EXPECT_LE(
      RelativeError(actual.grads.d_k, part(expected.grads.d_k, mine.keys)),
      backward);
  EXPECT_LE(
      RelativeError(actual.grads.d_v, part(expected.grads.d_v, mine.keys)),
      backward);
  const ParamGrads& a = actual.grads.params;
  const ParamGrads& b = expected.grads.params;
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    EXPECT_LE(RelativeError(a[n].value, b[n].value), backward) << a[n].name;
  }
}

template <typename T>
void ExpectSameBits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.Data<T>(), b.Data<T>(),
                        static_cast<size_t>(a.NumElements()) * sizeof(T)),
            0);
}

// Of float32 calls; gradients of parameters are float64.
inline void ExpectSameBits(const RingResult& a, const RingResult& b) {
  ExpectSameBits<float>(a.forward.out, b.forward.out);
  ExpectSameBits<float>(a.forward.lse, b.forward.lse);
  ExpectSameBits<float>(a.grads.d_q, b.grads.d_q);
  ExpectSameBits<float>(a.grads.d_k, b.grads.d_k);
  ExpectSameBits<float>(a.grads.d_v, b.grads.d_v);
  ASSERT_EQ(a.grads.params.size(), b.grads.params.size());
  for (size_t n = 0; n < a.grads.params.size(); ++n) {
    ExpectSameBits<double>(a.grads.params[n].value, b.grads.params[n].value);
  }
}

inline int Ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

inline int Rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// Cuts the call evenly, runs it on all ranks, compares this rank's part.
inline void ExpectRingEqualsWhole(const Call& whole, const Encoding& encoding,
                                  const Expected& expected,
                                  ring::Sharding sharding) {
  const auto chunks = [&](int64_t length) {
    return ring::Shard(sharding, length, Rank(), Ranks());
  };
  const RankCall mine(whole, expected.d_out, chunks(whole.q.size(2)),
                      chunks(whole.k.size(2)), sharding);
  ExpectEqualsWhole(mine, expected, whole, RunRing(mine, encoding));
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_RING_RANKS_H_
