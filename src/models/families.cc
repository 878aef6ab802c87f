#include "models/families.h"

#include <algorithm>

namespace locus::models {

const std::vector<Family>& AllFamilies() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (const auto& part :
         {AbsoluteFamilies(), VisionFamilies(), BucketFamilies(),
          RelativeFamilies(), AlibiFamilies(), RotaryFamilies(),
          LayeredFamilies(), LatentFamilies(), MultimodalFamilies(),
          RuledFamilies(), HybridFamilies(), AxialFamilies(), TableFamilies(),
          LoweredFamilies(), SpeechFamilies(), WindowFamilies(),
          RefusedFamilies()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

const Family& FindFamily(const std::string& model_type) {
  for (const Family& family : AllFamilies()) {
    if (std::ranges::find(family.info.model_types, model_type) !=
        family.info.model_types.end()) {
      return family;
    }
  }
  Fail(
      "model_type '{}' is not known; it needs a reader that says its pair "
      "layout, its scale and which layers have which positions (see `locus "
      "explain --families` for those that are known)",
      Printable(model_type));
}

std::vector<FamilyInfo> Families() {
  std::vector<FamilyInfo> infos;
  for (const Family& family : AllFamilies()) infos.push_back(family.info);
  return infos;
}

}  // namespace locus::models
