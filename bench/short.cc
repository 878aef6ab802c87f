// locus_short: short calls against a materialised softmax(scale Q K^T + B) V
// with OpenBLAS, where a fused kernel has the least to win.
//
// usage: locus_short [--threads=N] [--longest=N] [--bias] [--json=FILE]
//
// Both sides read the same inputs and are timed alternately in short batches.
// Reported is the minimum of each side: whatever else the machine does only
// adds to it. Both write into memory that was allocated beforehand.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/case.h"
#include "bench/materialised.h"
#include "bench/measure.h"
#include "locus/attention.h"
#include "locus/descriptor.h"
#include "locus/error.h"
#include "locus/files.h"
#include "locus/simd.h"
#include "locus/threads.h"

namespace locus::bench {
namespace {

constexpr int64_t kDim = 64;
constexpr int64_t kHeads[] = {1, 8, 64};
constexpr int64_t kLengths[] = {1, 4, 8, 16, 32, 64, 96, 128, 192, 256};
// Many short batches rather than a few long ones: on a busy machine some of
// them still run undisturbed. A batch is long enough for the clock.
constexpr int kRounds = 31;
constexpr double kBatchSeconds = 0.001;
// Threads of OpenBLAS spin for some 20 ms after a product, and would take their
// time from whoever is measured next.
constexpr auto kSettle = std::chrono::milliseconds(30);

struct Args {
  int threads = 0;
  int64_t longest = 256;  // longer ones are left out
  bool bias = false;
  std::string json = {};
};

struct Row {
  int64_t length = 0;
  int64_t heads = 0;
  double locus_us = 0.0;
  double products_us = 0.0;  // the peer, threads inside each product
  double heads_us = 0.0;     // the peer, one head per thread
  double error = 0.0;        // largest difference of the two outputs

  double Peer() const { return std::min(products_us, heads_us); }
  // Above 1 Locus is faster.
  double Ratio() const { return Peer() / locus_us; }
};

// Microseconds of a call, over one batch of them after one that warms up.
template <typename Call>
double Batch(const Call& call) {
  call();
  int64_t calls = 0;
  const double start = Seconds();
  double now = start;
  // The clock is read after 1, 2, 4, ... calls: it must not show in short ones.
  for (int64_t next = 1; now - start < kBatchSeconds; next *= 2) {
    for (int64_t n = 0; n < next; ++n) call();
    calls += next;
    now = Seconds();
  }
  return (now - start) / static_cast<double>(calls) * 1e6;
}

// T5's bias for the fused call, and the same written out for the peer.
struct Position {
  Position(int64_t heads, int64_t length, bool biased) {
    const Shape shape = Shape::SelfAttention(heads, kDim, length);
    terms = FindEncoding(biased ? "t5" : "none")
                .example({.heads = heads, .head_dim = kDim, .length = length})
                ->Lower(shape)
                .terms;
    if (!biased) return;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t j = 0; j < length; ++j) {
          bias.push_back(static_cast<float>(BiasAt(*terms.bias, h, i, j)));
        }
      }
    }
  }
  Terms terms;
  std::vector<float> bias;
};

Row Measure(int64_t heads, int64_t length, const Args& args) {
  const std::vector<int64_t> shape = {1, heads, length, kDim};
  const Tensor q = RandomInput(DType::kF32, shape, 1);
  const Tensor k = RandomInput(DType::kF32, shape, 2);
  const Tensor v = RandomInput(DType::kF32, shape, 3);
  const Position position(heads, length, args.bias);
  AttentionOptions options;
  options.threads = args.threads;
  Materialised peer(heads, length, kDim, args.threads, position.bias);
  AttentionResult result = Attention(q, k, v, position.terms, options);
  const auto ours = [&] {
    AttentionInto(q, k, v, position.terms, options, result);
  };
  const auto theirs = [&] {
    peer.Run(q.Data<float>(), k.Data<float>(), v.Data<float>());
  };
  Row row{.length = length, .heads = heads};
  const float* out = result.out.Data<float>();
  peer.Use(Split::kHeads);
  const std::vector<float>& expected =
      peer.Run(q.Data<float>(), k.Data<float>(), v.Data<float>());
  for (size_t n = 0; n < expected.size(); ++n) {
    row.error = std::max<double>(row.error, std::abs(expected[n] - out[n]));
  }
  std::vector<double> locus, products, by_head;
  for (int round = 0; round < kRounds; ++round) {
    locus.push_back(Batch(ours));
    peer.Use(Split::kHeads);
    by_head.push_back(Batch(theirs));
    peer.Use(Split::kProducts);
    products.push_back(Batch(theirs));
    if (args.threads > 1) std::this_thread::sleep_for(kSettle);
  }
  row.locus_us = *std::ranges::min_element(locus);
  row.products_us = *std::ranges::min_element(products);
  row.heads_us = *std::ranges::min_element(by_head);
  return row;
}

void PrintRow(const Row& r) {
  fmt::print(
      "{:>5} {:>5} {:>11.2f} {:>11.2f} {:>11.2f} {:>9.2f}  {:<5} {:>8.1e}\n",
      r.heads, r.length, r.locus_us, r.products_us, r.heads_us, r.Ratio(),
      r.Ratio() < 1.0 ? "loses" : "wins", r.error);
  std::fflush(stdout);
}

void PrintMeaning(const std::vector<Row>& rows) {
  std::string losses;
  for (const Row& r : rows) {
    if (r.Ratio() >= 1.0) continue;
    losses += fmt::format("{}{} x {} ({:.2f})", losses.empty() ? "" : ", ",
                          r.heads, r.length, r.Ratio());
  }
  fmt::print(
      "\nRatio: time of the faster way of the peer over the time of Locus; "
      "above 1 Locus wins.\n");
  if (losses.empty()) {
    fmt::print("Locus loses at no shape of these.\n");
  } else {
    fmt::print("Locus loses at B*H x N (ratio): {}.\n", losses);
  }
}

void SaveJson(const std::vector<Row>& rows, const Args& args) {
  std::string text = fmt::format(
      "{{\n  \"threads\": {}, \"simd\": \"{}\", \"dim\": {}, \"bias\": {},\n"
      "  \"rows\": [",
      args.threads, SimdTarget(), kDim, args.bias);
  for (size_t n = 0; n < rows.size(); ++n) {
    const Row& r = rows[n];
    text += fmt::format(
        "{}\n    {{\"heads\": {}, \"length\": {}, \"locus_us\": {:.3f}, "
        "\"products_us\": {:.3f}, \"heads_us\": {:.3f}, \"ratio\": {:.4f}, "
        "\"error\": {:.3e}}}",
        n == 0 ? "" : ",", r.heads, r.length, r.locus_us, r.products_us,
        r.heads_us, r.Ratio(), r.error);
  }
  WriteOutput(args.json, text + "\n  ]\n}\n");
}

// The number in "--flag=number".
template <typename Int>
Int Number(std::string_view arg, Int most) {
  const size_t at = arg.find('=');
  const std::string_view text = arg.substr(at + 1);
  Int value = 0;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 1 ||
      value > most) {
    throw Error(fmt::format("{} must lie in 1 .. {}, got '{}'",
                            arg.substr(0, at), most, text));
  }
  return value;
}

Args Read(int argc, char** argv) {
  constexpr std::string_view kJson = "--json=";
  Args args;
  args.threads = UsableCpus();
  for (int n = 1; n < argc; ++n) {
    const std::string_view arg = argv[n];
    if (arg == "--bias") {
      args.bias = true;
    } else if (arg.starts_with(kJson)) {
      args.json = arg.substr(kJson.size());
    } else if (arg.starts_with("--threads=")) {
      args.threads = Number<int>(arg, 1024);
    } else if (arg.starts_with("--longest=")) {
      args.longest = Number<int64_t>(arg, 4096);
    } else {
      throw Error(
          fmt::format("unexpected argument '{}'; known arguments: --threads=N, "
                      "--longest=N, --bias, --json=FILE",
                      arg));
    }
  }
  return args;
}

int Main(int argc, char** argv) {
  const Args args = Read(argc, argv);
  if (!args.json.empty()) CheckOutput(args.json);
  const std::string core = SettleBlasCore(SimdTarget(), argv);
  fmt::print(
      "softmax(Q K^T / 8{}) V with head dim {} on {} thread{}: Locus ({}) "
      "against OpenBLAS ({})\nmicroseconds, minimum of {}; BLAS with its "
      "threads inside each product, or one head per thread\n\n"
      "{:>5} {:>5} {:>11} {:>11} {:>11} {:>9}  {:<5} {:>8}\n",
      args.bias ? " + B" : "", kDim, args.threads, args.threads == 1 ? "" : "s",
      SimdTarget(), core, kRounds, "B*H", "N", "Locus", "BLAS inside",
      "BLAS heads", "ratio", "Locus", "differ");
  std::vector<Row> rows;
  for (const int64_t heads : kHeads) {
    for (const int64_t length : kLengths) {
      if (length > args.longest) break;
      rows.push_back(Measure(heads, length, args));
      PrintRow(rows.back());
    }
  }
  PrintMeaning(rows);
  if (!args.json.empty()) SaveJson(rows, args);
  return 0;
}

}  // namespace
}  // namespace locus::bench

int main(int argc, char** argv) {
  try {
    return locus::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "locus_short: {}\n", e.what());
    return 2;
  }
}
