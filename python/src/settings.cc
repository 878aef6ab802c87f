#include "settings.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "layout.h"
#include "rope_scaling.h"

namespace locus::python {
namespace {

nb::dict Dict(
    std::initializer_list<std::pair<const char*, nb::object>> entries) {
  nb::dict dict;
  for (const auto& [key, value] : entries) dict[key] = value;
  return dict;
}

template <typename T>
nb::object To(const T& value) {
  return nb::cast(value);
}

template <typename T>
nb::object OrNone(const std::optional<T>& value) {
  return value ? nb::cast(*value) : nb::none();
}

}  // namespace

nb::dict SettingsOf(const NoPosition& /*encoding*/) { return {}; }

nb::dict SettingsOf(const Index& e) {
  return Dict({{"dim", To(e.dim())}, {"mode", To(WordFor(e.mode(), kModes))}});
}

nb::dict SettingsOf(const NormalisedIndex& e) {
  return Dict({{"dim", To(e.dim())},
               {"mode", To(WordFor(e.mode(), kModes))},
               {"length", OrNone(e.length())}});
}

nb::dict SettingsOf(const Binary& e) {
  return Dict({{"bits", To(e.bits())}, {"dim", To(e.dim())}});
}

nb::dict SettingsOf(const SineOnly& e) {
  return Dict({{"dim", To(e.dim())}, {"base", To(e.base())}});
}

nb::dict SettingsOf(const Sinusoidal& e) {
  return Dict({{"dim", To(e.dim())},
               {"base", To(e.options().base)},
               {"layout", To(WordFor(e.options().layout, kSinusoids))},
               {"offset", To(e.options().offset)}});
}

nb::dict SettingsOf(const Learned& e) {
  return Dict({{"offset", To(e.offset())}});
}

nb::dict SettingsOf(const Shaw& e) {
  return Dict({{"keys", nb::none()},  // unless it is a parameter
               {"r_min", To(e.r_min())},
               {"r_max", To(e.r_max())}});
}

nb::dict SettingsOf(const KeyOffset& /*encoding*/) { return {}; }
nb::dict SettingsOf(const TransformerXL& /*encoding*/) { return {}; }

nb::dict SettingsOf(const Deberta& e) {
  return Dict({{"c2p", nb::none()},
               {"p2c", nb::none()},
               {"position_buckets", To(e.position_buckets())},
               {"max_relative_positions", To(e.max_relative_positions())}});
}

nb::dict SettingsOf(const Tupe& e) {
  const TupeOptions& o = e.options();
  return Dict({{"cls_position", To(o.cls_position)},
               {"buckets", o.buckets ? To(Buckets{*o.buckets}) : nb::none()}});
}

nb::dict SettingsOf(const T5Bias& e) {
  return Dict({{"max_distance", To(e.max_distance())},
               {"bidirectional", To(e.bidirectional())}});
}

nb::dict SettingsOf(const Alibi& e) {
  return Dict({{"heads", To(e.ramp().past.size())},
               {"slopes", To(e.ramp().past)},
               {"future_slopes", To(e.ramp().future)}});
}

nb::dict SettingsOf(const Kerple& e) {
  return Dict({{"kind", To(WordFor(e.kind(), kKernels))}});
}

nb::dict SettingsOf(const Fire& e) {
  return Dict({{"epsilon", To(e.epsilon())}});
}

nb::dict SettingsOf(const Sandwich& e) {
  return Dict(
      {{"heads", To(e.heads())}, {"dim", To(e.dim())}, {"base", To(e.base())}});
}

nb::dict SettingsOf(const SwinBias& e) {
  return Dict({{"height", To(e.height())},
               {"width", To(e.width())},
               {"cls", To(e.cls())}});
}

nb::dict SettingsOf(const Rope& e) {
  const RopeOptions& o = e.options();
  return Dict(
      {{"head_dim", To(e.head_dim())},
       {"layout", To(WordFor(e.layout(), kLayouts))},
       {"base", To(o.base)},
       {"rotary_dim", To(o.rotary_dim)},
       {"scaling", ScalingDict(o.scaling)},
       {"angles", To(WordFor(o.angles, kAngles))},
       {"place", To(WordFor(o.place, kPlaces))},
       {"frequencies", o.frequencies.empty() ? nb::none() : To(o.frequencies)},
       {"softmax_factor", To(o.softmax_factor)},
       {"temperature_beta", To(o.temperature_beta)},
       {"temperature_shift", To(o.temperature_shift)},
       {"temperature_span", To(o.temperature_span)}});
}

nb::dict SettingsOf(const Rope2D& e) {
  return Dict(
      {{"head_dim", To(e.head_dim())},
       {"layout", To(WordFor(e.layout(), kLayouts))},
       {"width", To(e.width())},
       {"base", To(e.base())},
       {"frequencies", To(WordFor(e.frequencies(), kAxialFrequencies))}});
}

nb::dict SettingsOf(const MRope& e) {
  return Dict({{"head_dim", To(e.head_dim())},
               {"layout", To(WordFor(e.layout(), kLayouts))},
               {"sections", To(e.sections())},
               {"dealing", To(WordFor(e.dealing(), kDealings))},
               {"base", To(e.base())}});
}

nb::dict SettingsOf(const XPos& e) {
  return Dict({{"head_dim", To(e.head_dim())},
               {"layout", To(WordFor(e.layout(), kLayouts))},
               {"base", To(e.options().base)},
               {"scale_base", To(e.options().scale_base)},
               {"gamma", To(e.options().gamma)}});
}

namespace {

using Pieces = std::vector<std::array<int64_t, 3>>;

nb::tuple ReducedBuckets(const Buckets& self) {
  const BucketMap& map = self.map;
  Pieces pieces;
  for (const BucketMap::Piece& piece : map.pieces) {
    pieces.push_back({piece.start, piece.first_bucket, piece.step});
  }
  return nb::make_tuple(
      nb::module_::import_("locus._copies").attr("rebuild_buckets"),
      nb::make_tuple(map.count, map.min_offset, map.max_offset, pieces));
}

Buckets RebuildBuckets(int32_t count, int64_t lowest, int64_t highest,
                       const Pieces& pieces) {
  BucketMap map;
  map.count = count;
  map.min_offset = lowest;
  map.max_offset = highest;
  for (const auto& [start, first, step] : pieces) {
    map.pieces.push_back({.start = start,
                          .first_bucket = static_cast<int32_t>(first),
                          .step = static_cast<int32_t>(step)});
  }
  return {map};
}

}  // namespace

void BindBuckets(nb::module_& m) {
  nb::class_<Buckets>(m, "_Buckets").def("__reduce__", &ReducedBuckets);
  m.def("_rebuild_buckets", &RebuildBuckets);
}

nb::dict ParamsOf(const Encoding& encoding) {
  nb::dict result;
  for (const Param& param : encoding.Params()) {
    result[param.name.c_str()] = ToNumpy(param.value);
  }
  return result;
}

nb::tuple Reduced(nb::handle self, nb::handle native, const nb::dict& params,
                  const nb::dict& settings) {
  nb::dict arguments;
  arguments.update(settings);
  arguments.update(params);
  const nb::object rebuild =
      nb::module_::import_("locus._copies").attr("rebuild");
  return nb::make_tuple(rebuild, nb::make_tuple(native, self.type(), arguments),
                        nb::getattr(self, "__dict__", nb::none()));
}

}  // namespace locus::python
