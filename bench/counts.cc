// locus_counts: one representative call, for a tool that counts instructions.
//
// usage: locus_counts            lists the cases
//        locus_counts --about    prints the build and the usable SIMD targets
//        locus_counts CASE       runs the case
//
// tools/counts.py runs it under callgrind and compares the counts with those of
// bench/counts.json. Only what LocusCounted calls is counted: one call on one
// thread with the AVX2 kernels, after one that warms up. Inputs are always the
// same, and valgrind shows every program the same CPU with the same caches.
// What is left is a few hundred instructions in malloc and free, 0.1 % of the
// smallest case: Highway measures the clock when it is loaded, and leaves the
// allocator in one state or another.
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "locus/attention.h"
#include "locus/descriptor.h"
#include "locus/error.h"
#include "locus/kv_cache.h"
#include "locus/rotary.h"
#include "locus/simd.h"
#include "locus/tensor.h"
#include "locus/terms.h"

// callgrind finds it by this name (--toggle-collect).
extern "C" [[gnu::noinline]] void LocusCounted(
    const std::function<void()>& call) {
  call();
}

namespace locus::bench {
namespace {

using Call = std::function<void()>;

enum class Kind : uint8_t {
  kForward,
  kBackward,
  kEncoding,    // forward, the encoding lowered by the call
  kDecode,      // over a cache
  kRotate,      // by a table
  kRotateOnce,  // by a rotation: cosines and sines are part of the call
  kMerge,
};

struct CountCase {
  std::string_view name = {};
  Kind kind = Kind::kForward;
  std::string_view encoding = "none";
  std::map<std::string, std::string> options = {};  // of the encoding
  DType dtype = DType::kF32;
  bool causal = false;
  int64_t window = 0;  // keys that a query sees behind itself; 0: all
  std::optional<double> softcap = {};
  double dropout = 0.0;
  int64_t q_heads = 2;
  int64_t kv_heads = 2;
  // Too long for the kernel of short calls. Counting takes a microsecond per
  // instruction, so cases are as small as they can be.
  int64_t length = 272;
  int64_t queries = 0;  // at the end of the sequence; 0: all
  int64_t dim = 64;
};

// Backward calls do two and a half times the work.
constexpr int64_t kBackwardLength = 240;

const std::vector<CountCase>& Cases() {
  const std::map<std::string, std::string> halves = {{"layout", "halves"}};
  const std::map<std::string, std::string> interleaved = {
      {"layout", "interleaved"}};
  static const std::vector<CountCase> cases = {
      {.name = "forward/plain"},
      // More keys than a tile has.
      {.name = "forward/plain/long", .length = 1100, .queries = 64},
      {.name = "forward/plain/causal", .causal = true},
      {.name = "forward/rope/causal",
       .encoding = "rope",
       .options = halves,
       .causal = true},
      {.name = "forward/alibi/causal", .encoding = "alibi", .causal = true},
      {.name = "forward/t5", .encoding = "t5"},
      {.name = "forward/shaw",
       .encoding = "shaw",
       .options = {{"clip", "128"}}},
      {.name = "forward/transformer-xl", .encoding = "transformer-xl"},
      {.name = "forward/deberta",
       .encoding = "deberta",
       .options = {{"buckets", "256"}, {"max_distance", "512"}}},
      {.name = "forward/tupe", .encoding = "tupe"},
      {.name = "forward/fire/causal", .encoding = "fire", .causal = true},
      {.name = "forward/softcap", .softcap = 30.0},
      {.name = "forward/dropout", .dropout = 0.1},
      {.name = "forward/bf16", .dtype = DType::kBF16},
      {.name = "forward/grouped/window",
       .encoding = "rope",
       .options = halves,
       .causal = true,
       .window = 150,
       .kv_heads = 1,
       .dim = 128},
      {.name = "backward/plain/causal",
       .kind = Kind::kBackward,
       .causal = true,
       .length = kBackwardLength},
      {.name = "backward/dropout/causal",
       .kind = Kind::kBackward,
       .causal = true,
       .dropout = 0.1,
       .length = kBackwardLength},
      {.name = "backward/rope/grouped",
       .kind = Kind::kBackward,
       .encoding = "rope",
       .options = halves,
       .causal = true,
       .q_heads = 2,
       .kv_heads = 1,
       .length = kBackwardLength},
      {.name = "backward/t5",
       .kind = Kind::kBackward,
       .encoding = "t5",
       .length = kBackwardLength},
      {.name = "backward/shaw",
       .kind = Kind::kBackward,
       .encoding = "shaw",
       .options = {{"clip", "128"}},
       .q_heads = 1,
       .kv_heads = 1,
       .length = kBackwardLength},
      {.name = "backward/deberta",
       .kind = Kind::kBackward,
       .encoding = "deberta",
       .options = {{"buckets", "256"}, {"max_distance", "512"}},
       .q_heads = 1,
       .kv_heads = 1,
       .length = kBackwardLength},
      {.name = "backward/fire/causal",
       .kind = Kind::kBackward,
       .encoding = "fire",
       .causal = true,
       .length = kBackwardLength},
      {.name = "decode/f32",
       .kind = Kind::kDecode,
       .encoding = "rope",
       .options = halves,
       .q_heads = 8,
       .length = 2048,
       .queries = 1,
       .dim = 128},
      {.name = "decode/bf16",
       .kind = Kind::kDecode,
       .encoding = "rope",
       .options = halves,
       .dtype = DType::kBF16,
       .q_heads = 8,
       .length = 2048,
       .queries = 1,
       .dim = 128},
      {.name = "short/plain/16", .q_heads = 8, .kv_heads = 8, .length = 16},
      {.name = "short/t5/64",
       .encoding = "t5",
       .q_heads = 8,
       .kv_heads = 8,
       .length = 64},
      {.name = "short/encoding/64",
       .kind = Kind::kEncoding,
       .encoding = "rope",
       .options = halves,
       .causal = true,
       .q_heads = 8,
       .kv_heads = 8,
       .length = 64},
      {.name = "rotate/halves",
       .kind = Kind::kRotate,
       .encoding = "rope",
       .options = halves,
       .q_heads = 8},
      {.name = "rotate/interleaved",
       .kind = Kind::kRotate,
       .encoding = "rope",
       .options = interleaved,
       .q_heads = 8},
      {.name = "rotate/once",
       .kind = Kind::kRotateOnce,
       .encoding = "rope",
       .options = halves},
      {.name = "merge", .kind = Kind::kMerge},
  };
  return cases;
}

// Evenly spread over (-2, 2), in no visible order.
Tensor Numbers(DType dtype, const std::vector<int64_t>& shape, uint32_t seed) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  std::vector<float> values;
  values.reserve(count);
  for (uint32_t n = 0; n < count; ++n) {
    uint32_t hash = (n + seed * 0x01000193U) * 0x9E3779B9U;
    hash = (hash ^ (hash >> 15)) * 0x85EBCA6BU;
    values.push_back(4.0F * static_cast<float>(hash >> 8) * 0x1p-24F - 2.0F);
  }
  return Tensor::From(shape, std::move(values)).To(dtype);
}

// What a case reads. Calls keep a share in it.
struct Operands {
  explicit Operands(const CountCase& c) {
    const auto numbers = [&c](int64_t heads, int64_t length, uint32_t seed) {
      return Numbers(c.dtype, {1, heads, length, c.dim}, seed);
    };
    q = numbers(c.q_heads, c.queries > 0 ? c.queries : c.length, 1);
    k = numbers(c.kv_heads, c.length, 2);
    v = numbers(c.kv_heads, c.length, 3);
    d_out = numbers(c.q_heads, c.length, 4);
    encoding = FindEncoding(c.encoding)
                   .example({.heads = c.q_heads,
                             .head_dim = c.dim,
                             .length = c.length,
                             .options = c.options});
    Shape shape = Shape::SelfAttention(c.q_heads, c.dim, c.length, c.causal);
    shape.kv_heads = c.kv_heads;
    terms = encoding->Lower(shape).terms;
    options.causal = c.causal;
    if (c.window > 0) options.window = Window{.left = c.window};
    options.softcap = c.softcap;
    options.dropout = {.rate = c.dropout, .seed = 7};
    options.threads = 1;
    options.return_lse = c.kind == Kind::kBackward || c.kind == Kind::kMerge;
  }

  Tensor q, k, v, d_out;
  std::unique_ptr<Encoding> encoding;
  Terms terms;
  AttentionOptions options;
};

Call PrepareDecode(const CountCase& c,
                   const std::shared_ptr<const Operands>& in) {
  const auto cache =
      std::make_shared<KvCache>(KvCacheConfig{.kv_heads = c.kv_heads,
                                              .head_dim = c.dim,
                                              .dtype = c.dtype,
                                              .capacity = c.length,
                                              .q_heads = c.q_heads});
  cache->Append(in->k, in->v, in->terms, {.threads = 1});
  return [in, cache] { cache->Decode(in->q, in->terms, {.threads = 1}); };
}

Call Prepare(const CountCase& c) {
  const auto in = std::make_shared<const Operands>(c);
  switch (c.kind) {
    case Kind::kForward:
      return [in] { Attention(in->q, in->k, in->v, in->terms, in->options); };
    case Kind::kBackward:
      return [in, forward =
                      Attention(in->q, in->k, in->v, in->terms, in->options)] {
        AttentionBackward(in->d_out, in->q, in->k, in->v, forward, in->terms,
                          in->options);
      };
    case Kind::kEncoding:
      return
          [in] { Attention(in->q, in->k, in->v, *in->encoding, in->options); };
    case Kind::kDecode:
      return PrepareDecode(c, in);
    case Kind::kRotate:
      return [in, table = RotaryTable::UpTo(*in->terms.rotate, c.length,
                                            /*threads=*/1)] {
        Rotate(in->q, table, {.threads = 1});
      };
    case Kind::kRotateOnce:
      return [in] {
        Rotate(in->q, *in->terms.rotate, /*positions=*/{}, /*inverse=*/false,
               /*threads=*/1);
      };
    case Kind::kMerge:
      return [a = Attention(in->q, in->k, in->v, in->terms, in->options),
              b = Attention(in->q, in->v, in->k, in->terms, in->options)] {
        Merge(a, b);
      };
  }
  throw Error(fmt::format("the case '{}' is of no kind", c.name));
}

void Run(std::string_view name) {
  for (const CountCase& c : Cases()) {
    if (c.name != name) continue;
    ForceSimdTarget("AVX2");
    const Call call = Prepare(c);
    call();  // fills what the library keeps, and the allocator
    LocusCounted(call);
    return;
  }
  throw Error(
      fmt::format("there is no case '{}'; locus_counts without arguments lists "
                  "them",
                  name));
}

int Main(int argc, char** argv) {
  if (argc > 2) {
    throw Error(fmt::format("one case at most, got '{}' as well", argv[2]));
  }
  if (argc < 2) {
    for (const CountCase& c : Cases()) fmt::print("{}\n", c.name);
  } else if (std::string_view(argv[1]) == "--about") {
    fmt::print("build: {}\nsimd: {}\n", LOCUS_COUNTS_BUILD,
               fmt::join(SimdTargets(), " "));
  } else {
    Run(argv[1]);
  }
  return 0;
}

}  // namespace
}  // namespace locus::bench

int main(int argc, char** argv) {
  try {
    return locus::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "locus_counts: {}\n", e.what());
    return 2;
  }
}
