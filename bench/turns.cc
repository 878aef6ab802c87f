// locus_turns: times a short batch of calls for each line of its input.
//
// usage: locus_turns [--threads=N] [--simd=TARGET]
//
// A line is the name of a call, as locus_bench has them, and is answered by the
// microseconds of one call, or by "error: " and why there is none. The family
// AttnInto writes forward calls into a result that is kept. "encodings" is
// answered by the names of those that act in attention. bench/versions.py runs
// the programs of two builds beside each other and gives them the same lines
// alternately, so that both meet the same machine.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/case.h"
#include "bench/measure.h"
#include "bench/stream.h"
#include "locus/attention.h"
#include "locus/error.h"
#include "locus/simd.h"
#include "locus/threads.h"

namespace locus::bench {
namespace {

// A batch is long enough for the clock and short enough that both programs meet
// the same machine.
constexpr double kBatchSeconds = 0.004;

template <typename... Parts>
[[noreturn]] void Refuse(fmt::format_string<Parts...> text, Parts&&... parts) {
  throw Error(fmt::format(text, std::forward<Parts>(parts)...));
}

// The number after `key`, as in "L:512" or "--threads=2".
int64_t NumberAfter(std::string_view key, std::string_view part) {
  int64_t value = 0;
  if (part.starts_with(key)) {
    const char* end = part.data() + part.size();
    const auto [stop, error] =
        std::from_chars(part.data() + key.size(), end, value);
    if (error == std::errc() && stop == end && value >= 1 &&
        value <= int64_t{1} << 20) {
      return value;
    }
  }
  Refuse("expected {}NUMBER up to a million, got '{}'", key, part);
}

// `name` where it is one of `names`, by its index.
template <size_t kN>
size_t IndexOf(const std::array<std::string_view, kN>& names,
               std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    Refuse("expected one of {}, got '{}'", fmt::join(names, ", "), name);
  }
  return static_cast<size_t>(found - names.begin());
}

DType ReadType(std::string_view name) {
  constexpr std::array<std::string_view, 3> kNames = {"f32", "bf16", "f16"};
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return kTypes[IndexOf(kNames, name)];
}

std::vector<std::string> Split(const std::string& name) {
  std::vector<std::string> parts = {""};
  for (const char c : name) {
    if (c == '/') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Seconds of a call, over one batch of them.
double Batch(const std::function<void()>& call) {
  // The other program has had the caches since; a call that takes long fills
  // them itself.
  double start = Seconds();
  call();
  double now = Seconds();
  if (now - start > kBatchSeconds) return now - start;
  start = Seconds();
  int64_t calls = 0;
  // The clock is read after 1, 2, 4, ... calls: it must not show in short ones.
  for (int64_t next = 1; now - start < kBatchSeconds; next *= 2) {
    for (int64_t n = 0; n < next; ++n) call();
    calls += next;
    now = Seconds();
  }
  return (now - start) / static_cast<double>(calls);
}

// Returns what times a batch of the calls of this name.
using Timer = std::function<double()>;

// FAMILY/encoding/type/mask/L:length/D:dim/H:heads
Timer AttentionTimer(const std::vector<std::string>& parts, int threads) {
  if (parts.size() != 7) Refuse("an attention call has seven parts");
  constexpr std::array<std::string_view, 2> kMasks = {"full", "causal"};
  const CallSpec spec{.encoding = parts[1],
                      .dtype = ReadType(parts[2]),
                      .causal = IndexOf(kMasks, parts[3]) == 1,
                      .heads = NumberAfter("H:", parts[6]),
                      .length = NumberAfter("L:", parts[4]),
                      .dim = NumberAfter("D:", parts[5]),
                      .threads = threads};
  if (parts[0] == "AttnInto") {
    struct Into {
      Tensor q, k, v;
      Terms terms;
      AttentionOptions options;
      AttentionResult result;
    };
    const std::vector<int64_t> shape = {1, spec.heads, spec.length, spec.dim};
    const auto in = std::make_shared<Into>();
    in->q = RandomInput(spec.dtype, shape, 1);
    in->k = RandomInput(spec.dtype, shape, 2);
    in->v = RandomInput(spec.dtype, shape, 3);
    in->options.causal = spec.causal;
    in->options.threads = spec.threads;
    in->terms =
        MakeEncoding(spec.encoding, spec.heads, spec.dim, spec.length)
            ->Lower(Shape::SelfAttention(spec.heads, spec.dim, spec.length))
            .terms;
    in->result = Attention(in->q, in->k, in->v, in->terms, in->options);
    return [in] {
      return Batch([&] {
        AttentionInto(in->q, in->k, in->v, in->terms, in->options, in->result);
      });
    };
  }
  const Direction direction =
      parts[0] == "AttnBwd" ? Direction::kBackward : Direction::kForward;
  const auto one = std::make_shared<Case>(spec);
  one->Time(direction);  // fresh memory, and the forward pass of a backward one
  return [=] { return Batch([&] { one->Time(direction); }); };
}

// Decode/encoding/type/L:length/D:dim/H:heads/K:key heads, or Rotate/layout/...
Timer StreamTimer(const std::vector<std::string>& parts, int threads) {
  if (parts.size() != 7) Refuse("a call bound by memory has seven parts");
  StreamSpec spec{.dtype = ReadType(parts[2]),
                  .q_heads = NumberAfter("H:", parts[5]),
                  .kv_heads = NumberAfter("K:", parts[6]),
                  .length = NumberAfter("L:", parts[3]),
                  .dim = NumberAfter("D:", parts[4]),
                  .threads = threads};
  if (parts[0] == "Rotate") {
    constexpr std::array<std::string_view, 2> kLayouts = {"interleaved",
                                                          "halves"};
    spec.stream = Stream::kRotate;
    spec.layout = IndexOf(kLayouts, parts[1]) == 1 ? PairLayout::kHalves
                                                   : PairLayout::kInterleaved;
  } else {
    spec.encoding = parts[1];
  }
  const auto one = std::make_shared<StreamCase>(spec);
  return [one] { return one->Time(); };
}

Timer TimerOf(const std::string& name, int threads) {
  constexpr std::array<std::string_view, 5> kFamilies = {
      "AttnFwd", "AttnBwd", "AttnInto", "Decode", "Rotate"};
  const std::vector<std::string> parts = Split(name);
  return IndexOf(kFamilies, parts[0]) < 3 ? AttentionTimer(parts, threads)
                                          : StreamTimer(parts, threads);
}

int Main(int argc, char** argv) {
  int threads = UsableCpus();
  for (int n = 1; n < argc; ++n) {
    const std::string_view arg = argv[n];
    if (arg.starts_with("--threads=")) {
      threads = static_cast<int>(NumberAfter("--threads=", arg));
    } else if (arg.starts_with("--simd=")) {
      ForceSimdTarget(arg.substr(7));
    } else {
      Refuse("unexpected argument '{}'; there are --threads=N, --simd=TARGET",
             arg);
    }
  }
  std::string line, current;
  Timer timer;
  while (std::getline(std::cin, line)) {
    try {
      if (line == "encodings") {
        fmt::print("{}\n", fmt::join(AttentionEncodings(), " "));
      } else {
        if (line != current) {
          timer = nullptr;  // its memory first
          current.clear();
          timer = TimerOf(line, threads);
          current = line;
        }
        fmt::print("{:.4f}\n", timer() * 1e6);
      }
    } catch (const Error& e) {
      fmt::print("error: {}\n", e.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace locus::bench

int main(int argc, char** argv) {
  try {
    return locus::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "locus_turns: {}\n", e.what());
    return 2;
  }
}
