// Shared declarations of `locus bench`: the plan, the results, and their
// output.
#ifndef LOCUS_CLI_BENCH_H_
#define LOCUS_CLI_BENCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/stream.h"
#include "cli/app.h"
#include "locus/machine.h"

namespace locus::cli {

// Default sizes of sections: attention at a length that takes a second or two
// per encoding, and memory at a length where an N x N matrix would show.
inline constexpr int64_t kSpeedLength = 2048, kLongLength = 16384;
// A token of a long conversation, and a prompt, with the heads of a large
// model.
inline constexpr int64_t kDecodeLength = 8192, kRotateLength = 4096;
inline constexpr int kSpeedRepeats = 3, kGrowthRepeats = 2;

enum class Masks : uint8_t { kFull, kCausal, kBoth };

// The request. A size or number of repeats of 0 means the section's default.
struct BenchPlan {
  std::vector<std::string> encodings = {};  // "none" first
  std::vector<std::string> operands = {};   // in addition to plain attention
  std::optional<DType> dtype = {};          // empty: f32, or all in streams
  Masks masks = Masks::kBoth;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t dim = 0;
  int threads = 1;
  int repeats = 0;
  bool attention = false;
  bool memory = false;
  bool growth = false;
  bool decode = false;
  bool rotation = false;
  std::vector<std::string> decoded = {};  // encodings for decode, "none" first

  // The calls of a section whose default length is `usual_length`: each
  // encoding, then each operand.
  std::vector<bench::CallSpec> Specs(bool causal, int64_t usual_length) const;
  bench::CallSpec Spec(const std::string& encoding, bool causal,
                       int64_t usual_length) const;
  bench::StreamSpec StreamOf(bench::Stream stream) const;
  std::vector<DType> StreamTypes(bench::Stream stream) const;
  int Repeats(int usual) const { return repeats > 0 ? repeats : usual; }
};

struct BenchResults {
  MachineLimits machine = {};
  std::vector<bench::SpeedRow> attention = {};
  std::vector<bench::MemoryRow> memory = {};
  std::vector<bench::GrowthRow> growth = {};
  std::vector<bench::StreamRow> decode = {};
  std::vector<bench::StreamRow> rotation = {};
};

// Measures the plan, printing each row as it is measured if `tell`. Throws
// Interrupted (see bench_progress.h) if the user asks to stop.
BenchResults RunBench(const BenchPlan& plan, bool tell);

// ----------------------------------------------------------------- output

std::string HeaderText(const BenchPlan& plan, const MachineLimits& machine);

// A table is a title, rows that are printed as they are measured, and a
// sentence that says what the table means.
std::string SpeedTitle(const BenchPlan& plan);
std::string RowText(const bench::SpeedRow& row);
std::string Meaning(const std::vector<bench::SpeedRow>& rows);

std::string MemoryTitle(const BenchPlan& plan);
std::string RowText(const bench::MemoryRow& row);
std::string Meaning(const std::vector<bench::MemoryRow>& rows);

std::string GrowthTitle(const BenchPlan& plan);
std::string RowText(const bench::GrowthRow& row);
std::string Meaning(const std::vector<bench::GrowthRow>& rows);

std::string StreamTitle(const BenchPlan& plan, bench::Stream stream);
std::string RowText(const bench::StreamRow& row);
std::string Meaning(const std::vector<bench::StreamRow>& rows);

// Sections that were not measured are null.
Json ResultsJson(const BenchPlan& plan, const BenchResults& results);

// A bar chart of fractions of the multiply-add rate, as a .png or .svg file.
void DrawSpeeds(const BenchPlan& plan, const std::vector<bench::SpeedRow>& rows,
                const std::string& path);
// Throws Error unless `path` ends in .png or .svg.
void CheckChartName(const std::string& path);

}  // namespace locus::cli

#endif  // LOCUS_CLI_BENCH_H_
