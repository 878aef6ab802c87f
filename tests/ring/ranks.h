// Calls that are sharded over ranks and compared with the whole.
#ifndef LOCUS_TESTS_RING_RANKS_H_
#define LOCUS_TESTS_RING_RANKS_H_

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>

#include "kernels/compare.h"
#include "locus/ring.h"

namespace locus::testing {

inline constexpr ring::Sharding kShardings[] = {ring::Sharding::kContiguous,
                                                ring::Sharding::kZigzag,
                                                ring::Sharding::kRoundRobin};

// Half a unit in the last place of the type of a result, for numbers around 1.
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

// [B, H, L] as [B, H, L, 1], so that it can be sharded.
inline Tensor AsRows(const Tensor& x) {
  return Tensor::Borrow(x.dtype(), {x.size(0), x.size(1), x.size(2), 1}, {},
                        x.Raw());
}

// The tokens of `chunks` of [B, H, L] or [B, H, L, D].
inline Tensor TakeTokens(const Tensor& x,
                         const std::vector<ring::Chunk>& chunks) {
  if (x.rank() == 4) return ring::TakeShard(x, chunks);
  const Tensor taken = ring::TakeShard(AsRows(x), chunks);
  return Tensor::Borrow(x.dtype(), {x.size(0), x.size(1), taken.size(2)}, {},
                        taken.Raw(), std::make_shared<Tensor>(taken));
}

// The rows of the queries in `chunks`, unless one row serves all queries.
inline Tensor TakePairs(const Tensor& x,
                        const std::vector<ring::Chunk>& chunks) {
  return x.size(2) == 1 ? x : ring::TakeShard(x, chunks);
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
    AttentionOptions& o = call.options;
    if (o.key_bias.defined()) o.key_bias = TakeTokens(o.key_bias, keys);
    if (o.pair_bias.defined()) o.pair_bias = TakePairs(o.pair_bias, queries);
    if (o.table_queries.defined()) {
      o.table_queries = TakeTokens(o.table_queries, queries);
    }
    if (o.mask.defined() || !call.pairs.empty()) CutMask();
    options.attention = call.Options();
    options.attention.return_lse = true;
    options.attention.threads = 1;
    options.sharding = sharding;
    options.deadline_seconds = 60.0;
  }
  RankCall(const RankCall&) = delete;  // options point into the call
  RankCall& operator=(const RankCall&) = delete;

 private:
  // Rows of this rank's queries, with an unused byte between keys.
  void CutMask() {
    PairMask whole = call.options.mask;
    const std::vector<uint8_t> bytes = std::move(call.pairs);
    whole.data = bytes.data();
    call.pairs.clear();
    PairMask& mine = call.options.mask;
    if (whole.shape[2] != 1) mine.shape[2] = call.q.size(2);
    for (int64_t b = 0; b < mine.shape[0]; ++b) {
      for (int64_t h = 0; h < mine.shape[1]; ++h) {
        const auto row = [&](int64_t i) {
          for (int64_t j = 0; j < mine.shape[3]; ++j) {
            call.pairs.push_back(*whole.At(b, h, i, j));
            call.pairs.push_back(1);
          }
        };
        if (whole.shape[2] == 1) row(0);
        for (const ring::Chunk& chunk : queries) {
          for (int64_t i = 0; i < chunk.count && whole.shape[2] != 1; ++i) {
            row(chunk.first + i * chunk.stride);
          }
        }
      }
    }
    call.pairs.push_back(1);  // never empty, so that a mask is given
    int64_t step = 2;
    for (size_t axis = 4; axis-- > 0; step *= mine.shape[axis]) {
      mine.strides[axis] = step;
    }
  }
};

// Terms used as given, with their gradients as those of parameters.
class GivenTerms : public Encoding {
 public:
  explicit GivenTerms(Terms terms) : terms_(std::move(terms)) {}

  std::string_view Name() const override { return "given"; }
  Lowered Lower(const Shape& shape) const override {
    (void)shape;
    return {.terms = terms_};
  }
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override {
    (void)shape;
    return Members(grads);
  }

 private:
  Terms terms_;
};

// The result of a single process, in float64.
struct Expected {
  reference::Forward forward;
  EncodingGrads grads;
  Tensor d_out;
  Tensor d_lse;  // if there is one

  Expected(const Call& call, const Encoding& encoding,
           bool with_d_lse = false) {
    const AttentionOptions options = call.Options();
    forward = reference::Attention(call.q, call.k, call.v, encoding, options);
    d_out = RandomTensor(forward.out.shape(), 5).To(call.q.dtype());
    if (with_d_lse) d_lse = RandomTensor(forward.lse.shape(), 6);
    grads = reference::AttentionBackward(
        d_out, call.q, call.k, call.v, encoding, options,
        {.d_lse = d_lse, .pair_bias = options.pair_bias.defined()});
  }
};

struct RingResult {
  AttentionResult forward;
  EncodingGrads grads;
};

// d_lse is that of the whole call, or undefined.
inline RingResult RunRing(const RankCall& mine, const Encoding& encoding,
                          const Tensor& d_lse = {}) {
  RingResult result;
  const Call& c = mine.call;
  result.forward =
      ring::Attention(MPI_COMM_WORLD, c.q, c.k, c.v, encoding, mine.options);
  result.grads = ring::AttentionBackward(
      MPI_COMM_WORLD, mine.d_out, c.q, c.k, c.v, result.forward, encoding,
      mine.options,
      {.d_lse = d_lse.defined() ? TakeTokens(d_lse, mine.queries) : Tensor(),
       .pair_bias = mine.options.attention.pair_bias.defined()});
  return result;
}

// The largest magnitude of the finite elements.
inline double LargestFinite(const Tensor& x) {
  double largest = 0.0;
  for (double value : x.ToVector()) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

inline Tensor SumOverRanks(const Tensor& mine) {
  std::vector<double> sum = mine.ToVector();
  ring::Group(MPI_COMM_WORLD, 60.0).Sum(std::span(sum));
  return Tensor::From(mine.shape(), std::move(sum));
}

// The gradients of this rank's operands; if pair_bias has one row for all
// queries, each rank has its own contribution, and that of the whole is their
// sum.
inline void ExpectOperandGradsEqual(const RankCall& mine,
                                    const OperandGrads& expected,
                                    const OperandGrads& actual,
                                    double tolerance) {
  const std::vector<Param> a = Members(actual), b = Members(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    Tensor got = a[n].value, want = b[n].value;
    if (a[n].name == "key_bias") {
      want = TakeTokens(want, mine.keys);
    } else if (a[n].name == "table_queries") {
      want = TakeTokens(want, mine.queries);
    } else if (a[n].name == "pair_bias" && want.size(2) == 1) {
      got = SumOverRanks(got);
    } else if (a[n].name == "pair_bias") {
      want = TakePairs(want, mine.queries);
    }
    EXPECT_LE(RelativeError(got, want), tolerance) << a[n].name;
  }
}

// The error bound of the kernel tests against float64, the rounding of a narrow
// type, and the error of merging: parts are weighted by their float32 lse, and
// half a unit in the last place of two of them is the relative error of a
// weight.
inline void ExpectEqualsWhole(const RankCall& mine, const Expected& expected,
                              const Call& whole, const RingResult& actual) {
  const double rounding = RoundingOf(whole.q.dtype());
  const double joining = LargestFinite(expected.forward.lse) * kEps;
  const double forward = ForwardTolerance(whole) + rounding + joining;
  // The rounded output of the forward pass enters each gradient once, and d_out
  // and the result are rounded as well. Dropout scales up what it keeps.
  const double backward = (GradTolerance(whole) + 4.0 * rounding) /
                          (1.0 - whole.Options().dropout.rate);
  const auto& [queries, keys] = std::tie(mine.queries, mine.keys);
  EXPECT_LE(RelativeError(actual.forward.out,
                          TakeTokens(expected.forward.out, queries)),
            forward);
  EXPECT_LE(RelativeError(actual.forward.lse,
                          TakeTokens(expected.forward.lse, queries)),
            ForwardTolerance(whole));
  ASSERT_EQ(actual.forward.weights.defined(),
            expected.forward.weights.defined());
  if (expected.forward.weights.defined()) {
    EXPECT_LE(RelativeError(actual.forward.weights,
                            TakeTokens(expected.forward.weights, queries)),
              ForwardTolerance(whole) + joining);
  }
  EXPECT_LE(
      RelativeError(actual.grads.d_q, TakeTokens(expected.grads.d_q, queries)),
      backward);
  EXPECT_LE(
      RelativeError(actual.grads.d_k, TakeTokens(expected.grads.d_k, keys)),
      backward);
  EXPECT_LE(
      RelativeError(actual.grads.d_v, TakeTokens(expected.grads.d_v, keys)),
      backward);
  ExpectOperandGradsEqual(mine, expected.grads.operands, actual.grads.operands,
                          backward);
  const ParamGrads& a = actual.grads.params;
  const ParamGrads& b = expected.grads.params;
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    // As in ExpectBackwardEqualsReference.
    const double factor = a[n].name == "slopes" ? 4.0 : 1.0;
    EXPECT_LE(RelativeError(a[n].value, b[n].value), factor * backward)
        << a[n].name;
  }
}

template <typename T>
void ExpectSameBits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.Data<T>(), b.Data<T>(),
                        static_cast<size_t>(a.NumElements()) * sizeof(T)),
            0);
}

// For float32 calls; gradients of parameters are float64, and here so are those
// of operands.
inline void ExpectSameBits(const RingResult& a, const RingResult& b) {
  ExpectSameBits<float>(a.forward.out, b.forward.out);
  ExpectSameBits<float>(a.forward.lse, b.forward.lse);
  ExpectSameBits<float>(a.grads.d_q, b.grads.d_q);
  ExpectSameBits<float>(a.grads.d_k, b.grads.d_k);
  ExpectSameBits<float>(a.grads.d_v, b.grads.d_v);
  std::vector<Param> x = Members(a.grads.operands),
                     y = Members(b.grads.operands);
  x.insert(x.end(), a.grads.params.begin(), a.grads.params.end());
  y.insert(y.end(), b.grads.params.begin(), b.grads.params.end());
  ASSERT_EQ(x.size(), y.size());
  for (size_t n = 0; n < x.size(); ++n) {
    ExpectSameBits<double>(x[n].value, y[n].value);
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

// Shards the call evenly, runs it on all ranks, and compares this rank's part.
inline void ExpectRingEqualsWhole(const Call& whole, const Encoding& encoding,
                                  const Expected& expected,
                                  ring::Sharding sharding) {
  const auto chunks = [&](int64_t length) {
    return ring::Shard(sharding, length, Rank(), Ranks());
  };
  const RankCall mine(whole, expected.d_out, chunks(whole.q.size(2)),
                      chunks(whole.k.size(2)), sharding);
  ExpectEqualsWhole(mine, expected, whole,
                    RunRing(mine, encoding, expected.d_lse));
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_RING_RANKS_H_
