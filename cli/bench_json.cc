// The results of `locus bench` as JSON.
#include "cli/bench.h"
#include "locus/simd.h"
#include "locus/version.h"

namespace locus::cli {
namespace {

using bench::GrowthRow;
using bench::MemoryRow;
using bench::SpeedRow;
using bench::Spread;
using bench::StreamRow;

Json SpreadJson(const Spread& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}};
}

template <typename Row>
Json Start(const Row& row) {
  const std::string& operand = row.spec.operand;
  return {{"encoding", row.spec.encoding},
          {"operand", operand.empty() ? Json() : Json(operand)},
          {"direction", bench::DirectionName(row.direction)},
          {"causal", row.spec.causal},
          {"dtype", DTypeName(row.spec.dtype)},
          {"heads", row.spec.heads},
          {"length", row.spec.length},
          {"dim", row.spec.dim}};
}

Json RowJson(const SpeedRow& row) {
  Json json = Start(row);
  json["repeats"] = row.repeats;
  json["milliseconds"] = SpreadJson(row.milliseconds);
  json["gflops"] = SpreadJson(row.gflops);
  json["of_fma_peak"] = SpreadJson(row.of_peak);
  json["of_plain"] = SpreadJson(row.of_plain);
  json["error"] = row.error;
  json["error_length"] = bench::ShortLength(row.spec.length);
  return json;
}

Json RowJson(const MemoryRow& row) {
  Json json = Start(row);
  json["output_bytes"] = row.output_bytes;
  json["extra_bytes"] = row.extra_bytes;
  json["limit_bytes"] = row.LimitBytes();
  json["within_limit"] = row.Within();
  return json;
}

Json RowJson(const GrowthRow& row) {
  Json json = Start(row);
  json["repeats"] = row.repeats;
  json["lengths"] = row.lengths;
  json["milliseconds"] = row.milliseconds;
  json["extra_bytes"] = row.extra_bytes;
  json["time_ratio"] = NumberJson(row.TimeRatio());
  json["memory_ratio"] = NumberJson(row.MemoryRatio());
  return json;
}

Json RowJson(const StreamRow& row) {
  const bool decode = row.spec.stream == bench::Stream::kDecode;
  Json json = Json::object();
  if (decode) {
    json["encoding"] = row.spec.encoding;
  } else {
    json["layout"] = bench::LayoutName(row.spec.layout);
  }
  json["dtype"] = DTypeName(row.spec.dtype);
  json["q_heads"] = row.spec.q_heads;
  json["kv_heads"] = row.spec.kv_heads;
  json["length"] = row.spec.length;
  json["dim"] = row.spec.dim;
  json["repeats"] = row.repeats;
  json["bytes"] = row.spec.Bytes();
  json["milliseconds"] = SpreadJson(row.milliseconds);
  json["gb_per_s"] = SpreadJson(row.gb_per_s);
  json[decode ? "of_read" : "of_update"] = SpreadJson(row.of_limit);
  if (row.of_plain) json["of_plain"] = SpreadJson(*row.of_plain);
  json["error"] = row.error;
  json["error_length"] = bench::ShortLength(row.spec.length);
  return json;
}

template <typename Row>
Json RowsJson(bool measured, const std::vector<Row>& rows) {
  if (!measured) return nullptr;
  Json json = Json::array();
  for (const Row& row : rows) json.push_back(RowJson(row));
  return json;
}

}  // namespace

Json ResultsJson(const BenchPlan& plan, const BenchResults& results) {
  const MachineLimits& machine = results.machine;
  return {{"version", Version()},
          {"threads", plan.threads},
          {"simd", SimdTarget()},
          {"machine",
           {{"fma_gflops", machine.fma_gflops},
            {"read_gb_per_s", machine.read_gb_per_s},
            {"copy_gb_per_s", machine.copy_gb_per_s},
            {"update_gb_per_s", machine.update_gb_per_s}}},
          {"attention", RowsJson(plan.attention, results.attention)},
          {"memory", RowsJson(plan.memory, results.memory)},
          {"growth", RowsJson(plan.growth, results.growth)},
          {"decode", RowsJson(plan.decode, results.decode)},
          {"rotation", RowsJson(plan.rotation, results.rotation)}};
}

}  // namespace locus::cli
