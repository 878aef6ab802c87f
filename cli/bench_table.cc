// The tables of `locus bench`, and sentences about their meaning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/bench.h"
#include "locus/simd.h"

namespace locus::cli {
namespace {

using bench::Direction;
using bench::GrowthRow;
using bench::MemoryRow;
using bench::SpeedRow;
using bench::Spread;
using bench::StreamRow;

// Five columns: "0.853", "12.35", and all digits from 1000 on.
std::string Five(double x) {
  const int digits = x < 9.9995 ? 3 : x < 99.995 ? 2 : x < 999.95 ? 1 : 0;
  return fmt::format("{:.{}f}", x, digits);
}

// "0.853 (0.849 .. 0.858)": 22 columns.
std::string Text(const Spread& s) {
  return fmt::format("{} ({} .. {})", Five(s.median), Five(s.low),
                     Five(s.high));
}

template <typename Row>
std::string Start(const Row& row) {
  return fmt::format("{:<17} {:<9} {:<6}", row.spec.Name(),
                     bench::DirectionName(row.direction),
                     row.spec.causal ? "causal" : "full");
}

std::string StartTitle() {
  return fmt::format("{:<17} {:<9} {:<6}", "encoding", "direction", "mask");
}

// "with deberta (backward, causal)".
template <typename Row>
std::string Which(const Row& row) {
  const std::string& name = row.spec.Name();
  return fmt::format("{} ({}, {})", name == "none" ? "plain" : "with " + name,
                     bench::DirectionName(row.direction),
                     row.spec.causal ? "causal" : "full");
}

std::string Paragraph(const std::string& text) {
  const size_t width = static_cast<size_t>(std::min(TerminalWidth(), 100));
  return fmt::format("{}\n", fmt::join(Wrap(text, width), "\n"));
}

std::string Megabytes(double bytes) {
  return fmt::format("{:.1f}", bytes / 1e6);
}

// "12.3 x", or "-" if the shorter call needed nothing.
std::string Ratio(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.2f} x", ratio) : "-";
}

}  // namespace

std::string HeaderText(const BenchPlan& plan, const MachineLimits& machine) {
  return fmt::format(
      "{} thread{}, {}: {:.0f} GFLOP/s multiply-add; {:.1f} GB/s read, {:.1f} "
      "copy, {:.1f} in place\n",
      plan.threads, plan.threads == 1 ? "" : "s", SimdTarget(),
      machine.fma_gflops, machine.read_gb_per_s, machine.copy_gb_per_s,
      machine.update_gb_per_s);
}

std::string SpeedTitle(const BenchPlan& plan) {
  const bench::CallSpec spec = plan.Spec("none", false, kSpeedLength);
  return fmt::format(
      "\nattention on [1, {}, {}, {}] {}: median of {} (least .. most); error "
      "against float64 at length {}\n\n{} {:>9} {:>8}  {:<22}  {:<22} {:>8}\n",
      spec.heads, spec.length, spec.dim, DTypeName(spec.dtype),
      plan.Repeats(kSpeedRepeats), bench::ShortLength(spec.length),
      StartTitle(), "ms", "GFLOP/s", "of FMA peak", "of plain", "error");
}

std::string RowText(const SpeedRow& row) {
  return fmt::format("{} {:>9.2f} {:>8.1f}  {:<22}  {:<22} {:>8.1e}\n",
                     Start(row), row.milliseconds.median, row.gflops.median,
                     Text(row.of_peak), Text(row.of_plain), row.error);
}

std::string Meaning(const std::vector<SpeedRow>& rows) {
  // Encodings above this share of plain are free: two runs of plain attention
  // itself may differ by 3 % on a busy machine.
  constexpr double kFree = 0.97;
  std::vector<std::string> names;  // in order
  std::set<std::string> costly;
  const SpeedRow* worst = nullptr;
  for (const SpeedRow& row : rows) {
    const std::string& name = row.spec.Name();
    if (name == "none") continue;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    if (row.of_plain.median < kFree) costly.insert(name);
    if (worst == nullptr || row.of_plain.median < worst->of_plain.median) {
      worst = &row;
    }
  }
  std::string text =
      "Of FMA peak: 1 would be nothing but multiply-adds at this machine's "
      "full rate. Of plain: 1 means that position costs no time.";
  if (worst != nullptr) {
    std::erase_if(names,
                  [&](const std::string& n) { return costly.contains(n); });
    text += names.empty()
                ? fmt::format(
                      " Every encoding measured costs more than {:.0f} "
                      "% somewhere.",
                      100.0 * (1.0 - kFree))
                : fmt::format(" At most {:.0f} % is lost with {}.",
                              100.0 * (1.0 - kFree), fmt::join(names, ", "));
    text += fmt::format(" The slowest is {:.2f} of plain, {}.",
                        worst->of_plain.median, Which(*worst));
  }
  return "\n" + Paragraph(text);
}

std::string MemoryTitle(const BenchPlan& plan) {
  const bench::CallSpec spec = plan.Spec("none", false, kLongLength);
  return fmt::format(
      "\npeak memory of a call on [1, {}, {}, {}] {}, in MB; limit 64 MB + 4 x "
      "q\n\n{} {:>9} {:>9} {:>9}  {}\n",
      spec.heads, spec.length, spec.dim, DTypeName(spec.dtype), StartTitle(),
      "outputs", "beyond", "limit", "within");
}

std::string RowText(const MemoryRow& row) {
  return fmt::format("{} {:>9} {:>9} {:>9}  {}\n", Start(row),
                     Megabytes(row.output_bytes), Megabytes(row.extra_bytes),
                     Megabytes(row.LimitBytes()), row.Within() ? "yes" : "no");
}

std::string Meaning(const std::vector<MemoryRow>& rows) {
  const auto worst =
      std::ranges::max_element(rows, {}, &MemoryRow::extra_bytes);
  const auto over = std::ranges::count_if(
      rows, [](const MemoryRow& row) { return !row.Within(); });
  const double n = static_cast<double>(worst->spec.length);
  const double square =
      4.0 * n * n * static_cast<double>(worst->spec.heads) / 1e6;
  return "\n" +
         Paragraph(fmt::format(
             "Beyond is the peak of the call less inputs and outputs; the "
             "scores alone, one float for each pair, would be {:.0f} MB. The "
             "most is {} MB {}. {}",
             square, Megabytes(worst->extra_bytes), Which(*worst),
             over == 0 ? "Every call stays within the limit."
                       : fmt::format("Over the limit: {} of {} calls.", over,
                                     rows.size())));
}

std::string GrowthTitle(const BenchPlan& plan) {
  const bench::CallSpec spec = plan.Spec("none", false, kLongLength);
  return fmt::format(
      "\nfrom length {} to {}, on [1, {}, length, {}] {}: median of {}; memory "
      "beyond inputs and outputs\n\n{} {:>9} {:>10} {:>9}  {:>8} {:>8} {:>9}\n",
      spec.length / 4, spec.length, spec.heads, spec.dim, DTypeName(spec.dtype),
      plan.Repeats(kGrowthRepeats), StartTitle(), "ms", "-> ms", "ratio", "MB",
      "-> MB", "ratio");
}

std::string RowText(const GrowthRow& row) {
  return fmt::format("{} {:>9.2f} {:>10.2f} {:>9}  {:>8} {:>8} {:>9}\n",
                     Start(row), row.milliseconds[0], row.milliseconds[1],
                     Ratio(row.TimeRatio()), Megabytes(row.extra_bytes[0]),
                     Megabytes(row.extra_bytes[1]), Ratio(row.MemoryRatio()));
}

std::string Meaning(const std::vector<GrowthRow>& rows) {
  const auto slowest =
      std::ranges::max_element(rows, {}, &GrowthRow::TimeRatio);
  const auto largest =
      std::ranges::max_element(rows, {}, &GrowthRow::MemoryRatio);
  return "\n" +
         Paragraph(fmt::format(
             "Four times the length is 16 times the work, and 4 times the "
             "memory if nothing grows with the square. Time grows most by {}, "
             "{}; memory by {}, {}.",
             Ratio(slowest->TimeRatio()), Which(*slowest),
             Ratio(largest->MemoryRatio()), Which(*largest)));
}

std::string StreamTitle(const BenchPlan& plan, bench::Stream stream) {
  const bench::StreamSpec spec = plan.StreamOf(stream);
  const bool decode = stream == bench::Stream::kDecode;
  const std::string what =
      decode ? fmt::format(
                   "decode: 1 query on {} heads over {} cached tokens "
                   "on {}, head dim {}",
                   spec.q_heads, spec.length, spec.kv_heads, spec.dim)
             : fmt::format(
                   "rotation in place: q [1, {0}, {1}, {2}] and k [1, "
                   "{3}, {1}, {2}]",
                   spec.q_heads, spec.length, spec.dim, spec.kv_heads);
  return fmt::format(
      "\n{}: median of {} (least .. most); error against float64 at length "
      "{}\n\n{:<16} {:<5} {:>9} {:>8}  {:<22}  {:<22} {:>8}\n",
      what, plan.Repeats(kSpeedRepeats), bench::ShortLength(spec.length),
      decode ? "encoding" : "layout", "type", "ms", "GB/s",
      decode ? "of read bandwidth" : "of in-place bandwidth",
      decode ? "of plain" : "", "error");
}

std::string RowText(const StreamRow& row) {
  const bool decode = row.spec.stream == bench::Stream::kDecode;
  return fmt::format(
      "{:<16} {:<5} {:>9.2f} {:>8.1f}  {:<22}  {:<22} {:>8.1e}\n",
      decode ? std::string_view(row.spec.encoding)
             : bench::LayoutName(row.spec.layout),
      DTypeName(row.spec.dtype), row.milliseconds.median, row.gb_per_s.median,
      Text(row.of_limit), row.of_plain ? Text(*row.of_plain) : "", row.error);
}

std::string Meaning(const std::vector<StreamRow>& rows) {
  const auto slowest = std::ranges::min_element(
      rows, {}, [](const StreamRow& row) { return row.of_limit.median; });
  const bool decode = slowest->spec.stream == bench::Stream::kDecode;
  return "\n" +
         Paragraph(fmt::format(
             "{} The slowest is {:.2f} of that, {} in {}.",
             decode ? "Of read bandwidth: 1 would be nothing but reading keys "
                      "and values once. Of plain: decoding without an "
                      "encoding, in bf16 for i8."
                    : "Of in-place bandwidth: 1 would be nothing but reading "
                      "and writing q and k once; the table is made before.",
             slowest->of_limit.median,
             decode ? std::string_view(slowest->spec.encoding)
                    : bench::LayoutName(slowest->spec.layout),
             DTypeName(slowest->spec.dtype)));
}

}  // namespace locus::cli
