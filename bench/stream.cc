#include "bench/stream.h"

#include <algorithm>
#include <cmath>

#include "bench/case.h"
#include "locus/reference.h"

namespace locus::bench {
namespace {

// RoPE's own, on every channel.
Rotation RotationOf(const StreamSpec& spec) {
  Rotation rotation{.layout = spec.layout, .rotary_dim = spec.dim};
  for (int64_t p = 0; p < rotation.NumPairs(); ++p) {
    rotation.theta.push_back(std::pow(
        1e4, -2.0 * static_cast<double>(p) / static_cast<double>(spec.dim)));
  }
  return rotation;
}

// Integers are storage of the cache: what it is given are floats.
Tensor Random(const StreamSpec& spec, int64_t heads, int64_t tokens,
              uint64_t seed) {
  const DType dtype = spec.dtype == DType::kI8 ? DType::kF32 : spec.dtype;
  return RandomInput(dtype, {1, heads, tokens, spec.dim}, seed);
}

// The same in memory of the library's own, on large pages where the system has
// any: the machine's limits are measured there, and so is a cache.
Tensor RandomResult(const StreamSpec& spec, int64_t heads, int64_t tokens,
                    uint64_t seed) {
  const Tensor from = Random(spec, heads, tokens, seed);
  Tensor to = Tensor::Empty(spec.dtype, from.shape());
  const auto copy = [&]<typename T>(const T* x) {
    std::copy_n(x, from.NumElements(), to.MutableData<T>());
  };
  if (spec.dtype == DType::kF32) {
    copy(from.Data<float>());
  } else {
    copy(from.Data<uint16_t>());
  }
  return to;
}

// One token over a cache.
struct DecodeData {
  // `k` and `v` are [1, kv_heads, length, dim].
  DecodeData(const StreamSpec& spec, const Tensor& k, const Tensor& v)
      : q(Random(spec, spec.q_heads, 1, 1)),
        positions(PositionsFor(spec.encoding, spec.length)),
        cache({.kv_heads = spec.kv_heads,
               .head_dim = spec.dim,
               .dtype = spec.dtype,
               .capacity = spec.length,
               .q_heads = spec.q_heads}) {
    options.threads = spec.threads;
    options.k_positions = positions;
    if (!positions.empty()) {
      options.q_positions = options.k_positions.last(1);
    }
    terms = MakeEncoding(spec.encoding, spec.q_heads, spec.dim, spec.length)
                ->Lower(CallShape(q, k, v, options))
                .terms;
    cache.Append(k, v, terms, {.positions = positions});
  }
  DecodeData(const DecodeData&) = delete;
  DecodeData& operator=(const DecodeData&) = delete;

  Tensor Run() const {
    AttentionOptions now = options;
    now.k_positions = {};  // the cache has them
    return cache.Decode(q, terms, DecodeOptions::From(now)).out;
  }

  Tensor q;
  std::vector<int64_t> positions;
  AttentionOptions options;
  Terms terms;
  KvCache cache;
};

struct RotateData {
  explicit RotateData(const StreamSpec& spec)
      : q(RandomResult(spec, spec.q_heads, spec.length, 1)),
        k(RandomResult(spec, spec.kv_heads, spec.length, 2)),
        table(RotaryTable::UpTo(RotationOf(spec), spec.length)) {
    options.threads = spec.threads;
  }

  void Run() {
    RotateInPlace(q, table, options);
    RotateInPlace(k, table, options);
  }

  Tensor q, k;
  RotaryTable table;
  RotateOptions options;
};

}  // namespace

StreamSpec StreamSpec::Plain() const {
  StreamSpec plain = *this;
  plain.encoding = "none";
  if (dtype == DType::kI8) plain.dtype = DType::kBF16;
  return plain;
}

double StreamSpec::Bytes() const {
  const int64_t scale = dtype == DType::kI8 ? DTypeBytes(DType::kF32) : 0;
  const double row =
      static_cast<double>(length * (dim * DTypeBytes(dtype) + scale));
  return stream == Stream::kDecode
             ? 2.0 * static_cast<double>(kv_heads) * row
             : 2.0 * static_cast<double>(q_heads + kv_heads) * row;
}

double StreamSpec::Limit(const MachineLimits& machine) const {
  return 1e9 * (stream == Stream::kDecode ? machine.read_gb_per_s
                                          : machine.update_gb_per_s);
}

struct StreamCase::Data {
  std::optional<DecodeData> decode;
  std::optional<RotateData> rotate;
};

StreamCase::StreamCase(const StreamSpec& spec) : spec_(spec) {
  // What the machine's own limit is measured on: 64 MiB a thread.
  const double wanted = static_cast<double>(int64_t{64} << 20) *
                        static_cast<double>(std::max(spec.threads, 1));
  const double passes = spec.stream == Stream::kDecode ? 1.0 : 2.0;
  const double copies = std::ceil(wanted * passes / spec.Bytes());
  // Short calls are timed in caches: many copies would say nothing more.
  constexpr double kMostCopies = 16.0;
  Tensor k, v;
  if (spec.stream == Stream::kDecode) {
    k = Random(spec, spec.kv_heads, spec.length, 2);
    v = Random(spec, spec.kv_heads, spec.length, 3);
  }
  for (int n = 0; n < static_cast<int>(std::min(copies, kMostCopies)); ++n) {
    auto data = std::make_unique<Data>();
    if (spec.stream == Stream::kDecode) {
      data->decode.emplace(spec, k, v);
    } else {
      data->rotate.emplace(spec);
    }
    data_.push_back(std::move(data));
  }
}

StreamCase::~StreamCase() = default;

double StreamCase::Time() {
  constexpr int kRounds = 5;
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    for (const std::unique_ptr<Data>& data : data_) {
      if (data->decode) {
        data->decode->Run();
      } else {
        data->rotate->Run();
      }
    }
    best = std::min(best, Seconds() - start);
  }
  return best / static_cast<double>(data_.size());
}

double StreamError(StreamSpec spec) {
  spec.length = ShortLength(spec.length);
  if (spec.stream == Stream::kDecode) {
    const Tensor k = Random(spec, spec.kv_heads, spec.length, 2);
    const Tensor v = Random(spec, spec.kv_heads, spec.length, 3);
    const DecodeData data(spec, k, v);
    const auto exact =
        reference::Attention(data.q, k, v, data.terms, data.options);
    return RelativeError(exact.out, data.Run());
  }
  RotateData data(spec);
  const Rotation rotation = RotationOf(spec);
  const Tensor exact_q = Rotate(data.q.To(DType::kF64), rotation);
  const Tensor exact_k = Rotate(data.k.To(DType::kF64), rotation);
  data.Run();
  return std::max(RelativeError(exact_q, data.q),
                  RelativeError(exact_k, data.k));
}

StreamRow MeasureStream(StreamCase* plain, StreamCase& with, int repeats,
                        const Between& between) {
  const StreamSpec& spec = with.spec();
  if (plain != nullptr) plain->Time();
  with.Time();
  std::vector<double> times, rates, of_limit, of_plain;
  for (int run = 0; run < repeats; ++run) {
    between();
    const double limit = spec.Limit(MeasureMachine(spec.threads));
    double base = 0.0;
    if (plain != nullptr && run % 2 == 0) base = plain->Time();
    const double mine = with.Time();
    if (plain != nullptr && run % 2 == 1) base = plain->Time();
    times.push_back(mine * 1e3);
    rates.push_back(spec.Bytes() / mine / 1e9);
    of_limit.push_back(spec.Bytes() / mine / limit);
    of_plain.push_back(base / mine);
  }
  StreamRow row{.spec = spec,
                .repeats = repeats,
                .milliseconds = Spread(times),
                .gb_per_s = Spread(rates),
                .of_limit = Spread(of_limit)};
  if (plain != nullptr) row.of_plain = Spread(of_plain);
  return row;
}

}  // namespace locus::bench
