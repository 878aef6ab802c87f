// Calls that are bound by memory: decoding one token over a cache of keys and
// values, and rotation alone in place. Their limit is a bandwidth.
#ifndef LOCUS_BENCH_STREAM_H_
#define LOCUS_BENCH_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure.h"
#include "locus/kv_cache.h"
#include "locus/machine.h"
#include "locus/rotary.h"

namespace locus::bench {

enum class Stream : uint8_t { kDecode, kRotate };

inline std::string_view LayoutName(PairLayout layout) {
  return layout == PairLayout::kHalves ? "halves" : "interleaved";
}

// Decode: a query on q_heads heads over `length` cached tokens on kv_heads.
// Rotate: q [1, q_heads, length, dim] and k [1, kv_heads, length, dim] by a
// table made before.
struct StreamSpec {
  Stream stream = Stream::kDecode;
  std::string encoding = "none";                 // of decode
  PairLayout layout = PairLayout::kInterleaved;  // of rotate
  DType dtype = DType::kF32;
  int64_t q_heads = 32;
  int64_t kv_heads = 8;
  int64_t length = 8192;
  int64_t dim = 128;
  int threads = 0;

  // What decode is compared with: no encoding, and for i8 bf16.
  StreamSpec Plain() const;
  // Decode: keys and values read once. Rotate: q and k read and written.
  double Bytes() const;
  // Decode: reading; rotate: updating in place. Bytes per second.
  double Limit(const MachineLimits& machine) const;
};

// Calls of one spec on data that take turns, so that none is found in a cache
// when the one before has left it there: a model has one such cache per layer.
class StreamCase {
 public:
  explicit StreamCase(const StreamSpec& spec);
  ~StreamCase();

  const StreamSpec& spec() const { return spec_; }
  // Mean seconds of a call in the best of five rounds of the data: the
  // machine's limit is the best of five passes, too.
  double Time();

 private:
  struct Data;

  StreamSpec spec_;
  std::vector<std::unique_ptr<Data>> data_;
};

// The largest difference from float64 over the largest value, at a length that
// the reference can afford.
double StreamError(StreamSpec spec);

struct StreamRow {
  StreamSpec spec = {};
  int repeats = 0;
  Spread milliseconds = {};
  Spread gb_per_s = {};
  Spread of_limit = {};
  std::optional<Spread> of_plain = {};  // of decode: as StreamSpec::Plain
  double error = 0.0;
};

// The call, plain decode (null: none) and the machine's bandwidth, interleaved.
// `error` is left alone.
StreamRow MeasureStream(StreamCase* plain, StreamCase& with, int repeats,
                        const Between& between);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_STREAM_H_
