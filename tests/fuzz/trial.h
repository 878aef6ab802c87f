// Runs one random call through every entry point, against the reference.
#ifndef LOCUS_TESTS_FUZZ_TRIAL_H_
#define LOCUS_TESTS_FUZZ_TRIAL_H_

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fuzz/judge.h"
#include "fuzz/spoil.h"
#include "fuzz/whole_call.h"
#include "kernels/compare.h"
#include "locus/locus.h"

namespace locus::testing {

class Trial {
 public:
  explicit Trial(uint64_t seed) : random_(seed), whole_(random_) {}

  // Returns "" on success, else what is wrong.
  std::string Run() {
    const std::vector<std::string> targets = SimdTargets();
    target_ = targets[static_cast<size_t>(
        random_.Draw(0, static_cast<int64_t>(targets.size()) - 1))];
    ForceSimdTarget(target_);
    std::string wrong = Forward();
    if (wrong.empty() && random_.OneIn(2)) wrong = Backward();
    if (wrong.empty() && random_.OneIn(3)) wrong = Cache();
    if (wrong.empty()) wrong = Refusal();
    ForceSimdTarget("");
    return wrong;
  }

  std::string Describe() const { return target_ + "; " + whole_.Describe(); }

 private:
  const Call& call() const { return whole_.call(); }

  // Large logits lose more precision: the error of a logit s in float32 is
  // about eps |s|, and the log of the sum is as large as the largest logit.
  double Bounded(double tolerance) const {
    double largest = 0.0;
    for (double lse : forward_.lse.ToVector()) {
      if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
    }
    return tolerance * (1.0 + largest / 4.0);
  }

  // The call with every number off by one rounding.
  Call Nearby(double by) {
    Call near = call();
    near.q = Perturbed(near.q, by, random_);
    near.k = Perturbed(near.k, by, random_);
    near.v = Perturbed(near.v, by, random_);
    const auto change = [&](Tensor& x) { x = Perturbed(x, by, random_); };
    AttentionOptions& o = near.options;
    for (Tensor* x : {&o.sinks, &o.key_bias, &o.pair_bias, &o.table_queries}) {
      if (x->defined()) change(*x);
    }
    Terms& t = near.terms;
    if (t.scale.rows.defined()) change(t.scale.rows);
    if (t.extra_dot) {
      change(t.extra_dot->q_rows);
      change(t.extra_dot->k_rows);
    }
    for (auto* table : {&t.q_table, &t.k_table, &t.v_table}) {
      if (*table) change((*table)->rows);
    }
    if (!t.bias) return near;
    if (auto* table = std::get_if<BiasTable>(&*t.bias)) {
      change(table->values);
    } else if (auto* ramp = std::get_if<BiasRamp>(&*t.bias)) {
      for (auto* slopes : {&ramp->past, &ramp->future}) {
        for (double& slope : *slopes) slope *= 1.0 + random_.Real(-by, by);
      }
    } else {
      change(std::get<BiasProfile>(*t.bias).base);
      change(std::get<BiasProfile>(*t.bias).slope);
    }
    return near;
  }

  std::string CompareForward(const std::string& name,
                             const AttentionResult& actual, const Bound& bound,
                             double by) {
    const Call near = Nearby(by);
    const auto exact = reference::Attention(call().q, call().k, call().v,
                                            call().terms, call().Options());
    const auto nearby = reference::Attention(near.q, near.k, near.v, near.terms,
                                             near.Options());
    std::string wrong =
        Compare(name + " out", actual.out, exact.out, nearby.out, bound);
    if (!wrong.empty()) return wrong;
    Bound of_lse = bound;
    of_lse.stored = DType::kF32;
    if (exact.weights.defined()) {
      wrong = Compare(name + " weights", actual.weights, exact.weights,
                      nearby.weights, of_lse);
      if (!wrong.empty()) return wrong;
    }
    return Compare(name + " lse", actual.lse, exact.lse, nearby.lse, of_lse);
  }

  std::string Forward() {
    AttentionOptions options = call().Options();
    forward_ = Attention(call().q, call().k, call().v, call().terms, options);
    const Bound bound{.relative = Bounded(ForwardTolerance(call())),
                      .perturbed = 64.0,
                      .stored = whole_.dtype()};
    std::string wrong = CompareForward("Attention's", forward_, bound, 0x1p-24);
    if (!wrong.empty()) return wrong;
    options.threads = options.threads == 1 ? 3 : 1;
    const AttentionResult again =
        Attention(call().q, call().k, call().v, call().terms, options);
    // Compares values, with NaN equal to NaN.
    return SameBits(again, forward_)
               ? ""
               : "another number of threads gives other bits";
  }

  std::string Backward() {
    const AttentionOptions options = call().Options();
    const Tensor d_out = Strided(
        RandomTensor(forward_.out.shape(), random_.Seed()).To(whole_.dtype()),
        random_);
    BackwardOptions backward;
    if (random_.OneIn(2)) {
      backward.d_lse = RandomTensor(forward_.lse.shape(), random_.Seed());
    }
    backward.pair_bias = options.pair_bias.defined() && random_.OneIn(2);
    const Terms& t = call().terms;
    const auto by_pair = [](const std::optional<BucketTable>& table) {
      return table && (table->buckets.grid || table->buckets.special);
    };
    AttentionGrads grads;
    try {
      grads = AttentionBackward(d_out, call().q, call().k, call().v, forward_,
                                t, options, backward);
    } catch (const Error& error) {
      if (by_pair(t.q_table) || by_pair(t.k_table) || by_pair(t.v_table)) {
        return "";  // as documented
      }
      return std::string("AttentionBackward: ") + error.what();
    }
    const bool narrow = whole_.dtype() != DType::kF32;
    const double by = Rounding(whole_.dtype());
    const Call near = Nearby(by);
    const auto exact = reference::AttentionBackward(
        d_out, call().q, call().k, call().v, t, options, backward);
    const auto nearby = reference::AttentionBackward(
        Perturbed(d_out, by, random_), near.q, near.k, near.v, near.terms,
        near.Options(), backward);
    // out is rounded to its type, and so is the term subtracted from dp.
    const Bound bound{.relative = Bounded(GradTolerance(call())) *
                                  (narrow ? by / 0x1p-24 : 1.0) *
                                  // The derivative of the cap is one more
                                  // product.
                                  (options.softcap ? 2.0 : 1.0),
                      .perturbed = narrow ? 16.0 : 64.0,
                      .stored = whole_.dtype()};
    const std::vector<std::array<const Tensor*, 3>> tensors = {
        {&grads.d_q, &exact.d_q, &nearby.d_q},
        {&grads.d_k, &exact.d_k, &nearby.d_k},
        {&grads.d_v, &exact.d_v, &nearby.d_v}};
    const char* names[] = {"d_q", "d_k", "d_v"};
    for (size_t n = 0; n < tensors.size(); ++n) {
      const std::string wrong = Compare(names[n], *tensors[n][0],
                                        *tensors[n][1], *tensors[n][2], bound);
      if (!wrong.empty()) return wrong;
    }
    const auto members = [](const auto& g) {
      std::vector<Param> all = Members(g.terms);
      for (Param& param : Members(g.operands)) all.push_back(std::move(param));
      return all;
    };
    const std::vector<Param> a = members(grads), e = members(exact),
                             p = members(nearby);
    if (a.size() != e.size()) return "gradients of terms are missing";
    for (size_t n = 0; n < a.size(); ++n) {
      Bound of_terms = bound;
      of_terms.stored =
          a[n].value.dtype() == DType::kF64 ? DType::kF32 : a[n].value.dtype();
      // Tables may be shared by all heads and sequences.
      of_terms.relative *=
          std::sqrt(static_cast<double>(call().q.size(0) * call().q.size(1)));
      // Sums of roundings, each multiplied by a distance.
      if (a[n].name == "slopes") of_terms.relative *= std::max(4.0, Reach());
      // Likewise multiplied by a coordinate, which is at most the position.
      if (a[n].name == "theta") of_terms.relative *= std::max(4.0, Farthest());
      // Likewise multiplied by a score.
      if (a[n].name == "scale") of_terms.relative *= LargestLse();
      const std::string wrong = Compare("d_" + a[n].name, a[n].value,
                                        e[n].value, p[n].value, of_terms);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  // The longest distance of a pair.
  double Reach() const {
    const AttentionOptions options = call().Options();
    const Shape shape = CallShape(call().q, call().k, call().v, options);
    return static_cast<double>(std::max(-shape.min_offset, shape.max_offset));
  }

  // The position that is farthest from 0.
  double Farthest() const {
    const Shape shape =
        CallShape(call().q, call().k, call().v, call().Options());
    return std::max(std::abs(static_cast<double>(shape.MinPosition())),
                    std::abs(static_cast<double>(shape.MaxPosition())));
  }

  // The largest |lse|, which is about the largest score that counts, or 1.
  double LargestLse() const {
    double largest = 1.0;
    for (const double lse : forward_.lse.ToVector()) {
      if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
    }
    return largest;
  }

  // Tokens [begin, end) of x, as a view.
  static Tensor Part(const Tensor& x, int64_t begin, int64_t end) {
    const auto* data = static_cast<const char*>(x.Raw());
    return Tensor::Borrow(
        x.dtype(), {x.size(0), x.size(1), end - begin, x.size(3)}, x.strides(),
        data + begin * x.strides()[2] * DTypeBytes(x.dtype()));
  }

  // The cache of the call's tokens, in storage of `dtype`.
  KvCache NewCache(DType dtype) {
    const Call& c = call();
    return KvCache({.batch = c.k.size(0),
                    .kv_heads = c.k.size(1),
                    .head_dim = c.k.size(3),
                    .value_dim = c.v.size(3),
                    .dtype = dtype,
                    .capacity = random_.Draw(0, 50),
                    .q_heads = c.q.size(1)});
  }

  void Append(KvCache& cache) {
    const Call& c = call();
    const int64_t batch = c.k.size(0), length = c.k.size(2);
    for (int64_t begin = 0; begin < length || begin == 0;) {
      // Sequences of different lengths are appended all at once.
      const int64_t end =
          c.key_lengths.empty()
              ? random_.Draw(std::min(begin + 1, length), length)
              : length;
      std::vector<int64_t> positions;
      const bool each = static_cast<int64_t>(c.k_pos.size()) > length;
      for (int64_t b = 0; b < (each ? batch : 1) && !c.k_pos.empty(); ++b) {
        const auto first = c.k_pos.begin() + b * length;
        positions.insert(positions.end(), first + begin, first + end);
      }
      cache.Append(Part(c.k, begin, end), Part(c.v, begin, end), c.terms,
                   {.positions = positions, .lengths = c.key_lengths});
      if (end == length) break;
      begin = end;
    }
  }

  std::string Cache() {
    const Call& c = call();
    const int64_t batch = c.q.size(0), q_len = c.q.size(2);
    // Segments cover all cached keys, so they do not work for ragged sequences.
    if (batch == 0 || (!c.key_lengths.empty() && !c.q_seg.empty())) return "";
    if (c.options.dropout.rate > 0.0) return "";
    // Neither do operands for the keys of the longest sequence, if no sequence
    // is that long.
    if (!c.key_lengths.empty() &&
        (c.options.key_bias.defined() || c.options.pair_bias.defined() ||
         !c.pairs.empty() || !c.prefix.empty() || c.options.return_weights)) {
      return "";
    }
    const DType dtype = random_.OneIn(3)
                            ? DType::kBF16
                            : (random_.OneIn(2) ? DType::kF32 : whole_.dtype());
    KvCache cache = NewCache(dtype);
    Append(cache);
    AttentionOptions options = c.Options();
    // The default positions of the queries in Attention.
    const CallMask mask(CheckCall(c.q, c.k, c.v, options), options);
    std::vector<int64_t> q_positions;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < q_len; ++i)
        q_positions.push_back(mask.QPos(b, i));
    }
    options.q_positions = q_positions;
    options.k_positions = {};
    options.key_lengths = {};
    const AttentionResult decoded =
        cache.Decode(c.q, c.terms, DecodeOptions::From(options));
    std::string wrong =
        EditedCache(dtype, DecodeOptions::From(options), decoded);
    if (wrong.empty())
      wrong = Pages(cache, DecodeOptions::From(options), decoded);
    if (!wrong.empty()) return wrong;
    // Keys and values are rounded to the type of the cache.
    const double by = Rounding(dtype);
    const bool narrow = dtype != DType::kF32;
    const Bound bound{.relative = Bounded(ForwardTolerance(call())) +
                                  (narrow ? 8.0 * by : 0.0),
                      .perturbed = narrow ? 16.0 : 64.0,
                      .stored = whole_.dtype()};
    return CompareForward("the cache's", decoded, bound, by);
  }

  static bool SameBits(const AttentionResult& a, const AttentionResult& b) {
    // Compares values, with NaN equal to NaN.
    return RelativeError(a.out, b.out) == 0.0 &&
           (!a.lse.defined() || RelativeError(a.lse, b.lse) == 0.0) &&
           (!a.weights.defined() || RelativeError(a.weights, b.weights) == 0.0);
  }

  // Tokens that were appended before and evicted, and copies of the cache,
  // change nothing; this holds for int8 as well, whatever its error.
  std::string EditedCache(DType dtype, const DecodeOptions& options,
                          const AttentionResult& decoded) {
    const Call& c = call();
    const int64_t length = c.k.size(2), junk = random_.Draw(0, length);
    std::vector<int64_t> positions = c.k_pos;
    for (int64_t i = 0; i < length && c.k_pos.empty(); ++i) {
      positions.push_back(i);
    }
    const auto fill = [&](KvCache& cache) {
      cache.Append(c.k, c.v, c.terms,
                   {.positions = positions, .lengths = c.key_lengths});
    };
    for (const DType stored : {dtype, DType::kI8}) {
      KvCache cache = NewCache(stored), plain = NewCache(stored);
      fill(plain);
      const std::span<const int64_t> first =
          std::span(positions).first(static_cast<size_t>(junk));
      cache.Append(Part(c.k, length - junk, length),
                   Part(c.v, length - junk, length), c.terms,
                   {.positions = first});
      fill(cache);
      cache.Evict(0, junk);
      const AttentionResult edited = cache.Fork().Decode(c.q, c.terms, options);
      const AttentionResult expected =
          stored == dtype ? decoded : plain.Decode(c.q, c.terms, options);
      if (!SameBits(edited, expected)) {
        return fmt::format("evicting {} tokens of {} gives other bits", junk,
                           DTypeName(stored));
      }
    }
    return "";
  }

  // The tokens of a cache in blocks give the same bits.
  std::string Pages(const KvCache& cache, const DecodeOptions& options,
                    const AttentionResult& decoded) {
    const Call& c = call();
    if (!c.k_pos.empty() || cache.size() == 0) return "";
    const int64_t batch = c.k.size(0), heads = c.k.size(1);
    const int64_t size = random_.Draw(1, 20);
    const int64_t per_sequence = (cache.size() + size - 1) / size;
    std::vector<int64_t> table, lengths;
    for (int64_t b = 0; b < batch; ++b) lengths.push_back(cache.size(b));
    // Blocks in reverse order.
    for (int64_t n = batch * per_sequence; n-- > 0;) table.push_back(n);
    const auto deal = [&](const Tensor& from) {
      const int64_t dim = from.size(3);
      Tensor to =
          Tensor::Zeros(from.dtype(), {batch * per_sequence, heads, size, dim});
      const int64_t bytes = DTypeBytes(from.dtype());
      auto* data = static_cast<char*>(const_cast<void*>(to.Raw()));
      const auto* rows = static_cast<const char*>(from.Raw());
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < cache.size(b); ++i) {
            const int64_t block =
                table[static_cast<size_t>(b * per_sequence + i / size)];
            const int64_t source = b * from.strides()[0] +
                                   h * from.strides()[1] +
                                   i * from.strides()[2];
            std::memcpy(
                data + ((block * heads + h) * size + i % size) * dim * bytes,
                rows + source * bytes, static_cast<size_t>(dim * bytes));
          }
        }
      }
      return to;
    };
    const KvPages pages{.k = deal(cache.keys()),
                        .v = deal(cache.values()),
                        .block_table = table,
                        .lengths = lengths};
    return SameBits(DecodePages(c.q, pages, c.terms, options), decoded)
               ? ""
               : fmt::format("blocks of {} tokens give other bits", size);
  }

  std::string Refusal() {
    Call bad = call();
    const std::string how = Spoil(bad, random_);
    if (how.empty()) return "";
    const AttentionOptions options = bad.Options();
    const auto refused = [](const auto& f) {
      try {
        f();
        return false;
      } catch (const Error&) {
        return true;
      }  // any other exception ends the program, as it should
    };
    if (!refused([&] { Attention(bad.q, bad.k, bad.v, bad.terms, options); })) {
      return "Attention accepts a bad " + how;
    }
    if (!refused([&] {
          AttentionBackward(forward_.out, bad.q, bad.k, bad.v, forward_,
                            bad.terms, options);
        })) {
      return "AttentionBackward accepts a bad " + how;
    }
    return "";
  }

  Random random_;
  WholeCall whole_;
  AttentionResult forward_;
  std::string target_;
};

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_TRIAL_H_
