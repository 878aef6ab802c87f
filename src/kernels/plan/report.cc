// The report of a plan, and its line of text.
#include <string>
#include <vector>

#include "core/fail.h"
#include "kernels/plan/drivers.h"
#include "kernels/plan/plan.h"
#include "locus/plan.h"
#include "locus/simd.h"

namespace locus {
namespace {

using kernels::Driver;
using kernels::Plan;

std::string DescribeMask(const AttentionOptions& o) {
  std::vector<std::string> parts;
  if (o.causal) parts.emplace_back(o.by_index ? "causal by index" : "causal");
  if (o.window) {
    parts.push_back(fmt::format("window {} back {} ahead", o.window->left,
                                o.window->right));
  }
  if (o.chunk) parts.push_back(fmt::format("chunks of {}", *o.chunk));
  if (!o.q_segments.empty()) parts.emplace_back("segments");
  if (!o.key_lengths.empty()) parts.emplace_back("key lengths");
  if (!o.prefix_lengths.empty()) parts.emplace_back("prefix");
  if (o.mask.defined()) parts.emplace_back("mask");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string CallReport::Line() const {
  std::vector<std::string> words = {
      pass == Pass::kForward ? "forward" : "backward", driver,
      std::string(DTypeName(dtype)),
      fmt::format("batch {}, heads {}/{}, lengths {}x{}, dims {}/{}", batch,
                  q_heads, kv_heads, q_len, k_len, head_dim, value_dim)};
  std::string line = fmt::format("{}", fmt::join(words, " "));
  if (!mask.empty()) line += ", " + mask;
  if (!terms.empty()) line += fmt::format(", {}", fmt::join(terms, " "));
  line += fmt::format(", {} {}, {}", threads,
                      threads == 1 ? "thread" : "threads", simd_target);
  for (const Refusal& refusal : refusals) {
    line += fmt::format("; not {}: {}", refusal.driver, refusal.reason);
  }
  return line;
}

CallReport kernels::Plan::Report() const {
  CallReport report{.pass = request.pass,
                    .driver = driver->name,
                    .simd_target = SimdTarget(),
                    .threads = threads,
                    .dtype = dtype,
                    .batch = sizes.batch,
                    .q_heads = sizes.q_heads,
                    .kv_heads = sizes.kv_heads,
                    .q_len = sizes.q_len,
                    .k_len = sizes.k_len,
                    .head_dim = sizes.head_dim,
                    .value_dim = sizes.value_dim,
                    .mask = DescribeMask(options),
                    .terms = TermNames(terms)};
  for (const Driver& each : DriversOf(request.pass)) {
    if (&each == driver) break;
    if (const char* reason = each.refuses(*this)) {
      report.refusals.push_back({.driver = each.name, .reason = reason});
    }
  }
  return report;
}

CallReport ExplainCall(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Terms& terms, const AttentionOptions& options,
                       Pass pass) {
  return Plan(q, k, v, terms, options, {.pass = pass}).Report();
}

CallReport ExplainCall(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Encoding& encoding,
                       const AttentionOptions& options, Pass pass) {
  return Plan(q, k, v, encoding, options, {.pass = pass}).Report();
}

}  // namespace locus
