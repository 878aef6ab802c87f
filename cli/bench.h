// What the parts of `locus bench` share: the wishes, the rows, and how they are
// told.
#ifndef LOCUS_CLI_BENCH_H_
#define LOCUS_CLI_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/memory.h"
#include "cli/app.h"
#include "locus/machine.h"

namespace locus::cli {

// What a section measures unless told otherwise: attention of a length that
// takes a second or two an encoding, memory of one where N x N would show.
inline constexpr int64_t kSpeedLength = 2048, kLongLength = 16384;
inline constexpr int kSpeedRepeats = 5, kGrowthRepeats = 2;

enum class Masks : uint8_t { kFull, kCausal, kBoth };

// What is wanted. A length or repeats of 0: what is usual for the section.
struct BenchPlan {
  std::vector<std::string> encodings = {};  // "none" first
  DType dtype = DType::kF32;
  Masks masks = Masks::kBoth;
  int64_t heads = 16;
  int64_t length = 0;
  int64_t dim = 64;
  int threads = 1;
  int repeats = 0;
  bool attention = false;
  bool memory = false;
  bool growth = false;

  // A call of a section that is usually measured at `usual_length`.
  bench::CallSpec Spec(const std::string& encoding, bool causal,
                       int64_t usual_length) const;
  int Repeats(int usual) const { return repeats > 0 ? repeats : usual; }
};

struct BenchResults {
  MachineLimits machine = {};
  std::vector<bench::SpeedRow> attention = {};
  std::vector<bench::MemoryRow> memory = {};
  std::vector<bench::GrowthRow> growth = {};
};

// ---------------------------------------------------------------- telling

std::string HeaderText(const BenchPlan& plan, const MachineLimits& machine);

// A table is a title, a row at a time as it is measured, and a sentence that
// says what the table means.
std::string SpeedTitle(const BenchPlan& plan);
std::string RowText(const bench::SpeedRow& row);
std::string Meaning(const std::vector<bench::SpeedRow>& rows);

std::string MemoryTitle(const BenchPlan& plan);
std::string RowText(const bench::MemoryRow& row);
std::string Meaning(const std::vector<bench::MemoryRow>& rows);

std::string GrowthTitle(const BenchPlan& plan);
std::string RowText(const bench::GrowthRow& row);
std::string Meaning(const std::vector<bench::GrowthRow>& rows);

// A section that was not measured is null.
Json ResultsJson(const BenchPlan& plan, const BenchResults& results);

// Bars of the fraction of the multiply-add rate, into a .png or .svg file.
void DrawSpeeds(const BenchPlan& plan, const std::vector<bench::SpeedRow>& rows,
                const std::string& path);
// Throws Error unless `path` ends in .png or .svg.
void CheckChartName(const std::string& path);

}  // namespace locus::cli

#endif  // LOCUS_CLI_BENCH_H_
