// Every encoding can be decomposed into the fields of its descriptor and
// rebuilt from them.
#include "locus/descriptor.h"

#include <gtest/gtest.h>

#include <set>

#include "locus/encodings/alibi.h"
#include "locus/encodings/rope.h"
#include "locus/error.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// The example, and an instance of each variant.
std::vector<std::unique_ptr<Encoding>> Instances(const EncodingInfo& info) {
  std::vector<std::unique_ptr<Encoding>> instances;
  instances.push_back(info.example({}));
  for (std::string_view variant : info.variants) {
    instances.push_back(info.example({.options = ParseOptions(variant)}));
  }
  return instances;
}

void ExpectSame(const Encoding& a, const Encoding& b, const Shape& shape) {
  const std::vector<Param> left = a.Params(), right = b.Params();
  ASSERT_EQ(left.size(), right.size());
  for (size_t n = 0; n < left.size(); ++n) {
    EXPECT_EQ(left[n].name, right[n].name);
    EXPECT_EQ(left[n].value.ToVector(), right[n].value.ToVector());
  }
  const Terms x = a.Lower(shape).terms, y = b.Lower(shape).terms;
  EXPECT_EQ(Describe(x), Describe(y));
  EXPECT_EQ(x.scale.scale, y.scale.scale);
  if (x.rotate) {
    EXPECT_EQ(x.rotate->theta, y.rotate->theta);
    EXPECT_EQ(x.rotate->gain, y.rotate->gain);
    EXPECT_EQ(x.rotate->layout, y.rotate->layout);
    EXPECT_EQ(x.rotate->log_decay, y.rotate->log_decay);
  }
  if (x.input_add) {
    EXPECT_EQ(x.input_add->table.ToVector(), y.input_add->table.ToVector());
  }
  if (const auto* table = x.bias ? std::get_if<BiasTable>(&*x.bias) : nullptr) {
    EXPECT_EQ(table->values.ToVector(),
              std::get<BiasTable>(*y.bias).values.ToVector());
  }
  if (const auto* ramp = x.bias ? std::get_if<BiasRamp>(&*x.bias) : nullptr) {
    EXPECT_EQ(ramp->past, std::get<BiasRamp>(*y.bias).past);
    EXPECT_EQ(ramp->future, std::get<BiasRamp>(*y.bias).future);
  }
}

TEST(DescriptorTest, FieldsMakeTheSameEncodingAgain) {
  for (const EncodingInfo& info : Encodings()) {
    for (const auto& encoding : Instances(info)) {
      SCOPED_TRACE(info.name);
      const auto again = info.make(info.fields_of(*encoding));
      ASSERT_NE(again, nullptr);
      EXPECT_EQ(again->Name(), info.name);
      ExpectSame(*encoding, *again, Shape::SelfAttention(8, 64, 100));
    }
  }
}

TEST(DescriptorTest, VariantsDifferFromTheExample) {
  for (const EncodingInfo& info : Encodings()) {
    const Shape shape = Shape::SelfAttention(8, 64, 100);
    // Everything that attention and the input use.
    const auto seen = [&](const Encoding& encoding) {
      const Terms terms = encoding.Lower(shape).terms;
      std::vector<double> numbers;
      for (const Param& param : encoding.Params()) {
        for (double x : param.value.ToVector()) numbers.push_back(x);
      }
      if (terms.rotate) {
        for (double x : terms.rotate->theta) numbers.push_back(x);
        for (auto axis : terms.rotate->axis) numbers.push_back(double(axis));
        numbers.push_back(terms.rotate->gain);
      }
      if (terms.input_add) {
        for (double x : terms.input_add->table.ToVector()) numbers.push_back(x);
      }
      if (terms.bias && std::holds_alternative<BiasRamp>(*terms.bias)) {
        for (double x : std::get<BiasRamp>(*terms.bias).past) {
          numbers.push_back(x);
        }
      }
      return std::pair(Describe(terms), numbers);
    };
    // A scaling by length takes effect past the length.
    std::set<std::pair<std::string, std::vector<double>>> kinds;
    const auto instances = Instances(info);
    for (const auto& encoding : instances) {
      auto [text, numbers] = seen(*encoding);
      if (const auto* rope = dynamic_cast<const Rope*>(encoding.get())) {
        for (double x : rope->RotationFor(4096).theta) numbers.push_back(x);
      }
      kinds.emplace(text, numbers);
    }
    EXPECT_EQ(kinds.size(), instances.size()) << info.name;
  }
}

TEST(DescriptorTest, IsComplete) {
  for (const EncodingInfo& info : Encodings()) {
    SCOPED_TRACE(info.name);
    EXPECT_FALSE(info.summary.empty());
    std::set<std::string_view> names;
    for (const Field& field : info.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      EXPECT_FALSE(field.sentence.empty()) << field.name;
      EXPECT_EQ(field.type == FieldType::kChoice, !field.choices.empty());
      if (field.type == FieldType::kTable) {
        EXPECT_FALSE(field.shape.empty()) << field.name;
      }
    }
    for (const Field& option : info.options) {
      EXPECT_FALSE(option.sentence.empty()) << option.name;
      EXPECT_FALSE(option.fallback.empty()) << option.name;
      EXPECT_LE(option.slider.lowest, option.slider.highest) << option.name;
      const bool number =
          option.type == FieldType::kInt || option.type == FieldType::kReal;
      if (option.slider.highest > option.slider.lowest) {
        EXPECT_TRUE(number) << option.name;
        EXPECT_GT(option.slider.step, option.slider.logarithmic ? 1.0 : 0.0);
      }
    }
    // Each parameter of each variant is a field, with its training settings.
    std::set<std::string_view> trained;
    for (const ParamTraining& row : info.training) trained.insert(row.name);
    EXPECT_EQ(trained.size(), info.training.size());
    EXPECT_EQ(info.trainable, !trained.empty());
    for (const auto& encoding : Instances(info)) {
      for (const Param& param : encoding->Params()) {
        EXPECT_TRUE(names.contains(param.name)) << param.name;
        EXPECT_TRUE(trained.contains(param.name)) << param.name;
      }
    }
    for (std::string_view name : trained) EXPECT_TRUE(names.contains(name));
  }
}

TEST(DescriptorTest, MissingFieldsTakeTheirDefaults) {
  const EncodingInfo& info = FindEncoding("alibi");
  const auto made = info.make({{"heads", int64_t{4}}});
  EXPECT_EQ(static_cast<const Alibi&>(*made).ramp().past, Alibi::Slopes(4));
  const auto half = info.make({{"heads", int64_t{4}}, {"bias_max", 4.0}});
  EXPECT_EQ(static_cast<const Alibi&>(*half).ramp().past,
            Alibi::Slopes(4, 4.0));
  // An integer is accepted for a real number.
  const auto whole =
      info.make({{"heads", int64_t{4}}, {"bias_max", int64_t{4}}});
  EXPECT_EQ(static_cast<const Alibi&>(*whole).ramp().past,
            Alibi::Slopes(4, 4.0));
}

TEST(DescriptorTest, RefusesBadFields) {
  const auto alibi = [](FieldValues values) {
    return ErrorOf([&] { FindEncoding("alibi").make(values); });
  };
  EXPECT_EQ(alibi({}), "Alibi needs heads");
  EXPECT_EQ(alibi({{"heads", std::monostate()}}),
            "Alibi needs heads, got None");
  EXPECT_EQ(alibi({{"heads", 4.0}}),
            "the value of Alibi's heads has the wrong type");
  EXPECT_EQ(alibi({{"heads", int64_t{4}}, {"slope", 1.0}}),
            "Alibi has no field 'slope'");
  EXPECT_EQ(ErrorOf([] {
              FindEncoding("rope").make(
                  {{"head_dim", int64_t{8}}, {"layout", "half"}});
            }),
            "Rope option layout must be one of interleaved, halves, got "
            "'half'");
  EXPECT_EQ(ErrorOf([] { FindEncoding("rope").fields_of(Alibi(4)); }),
            "Rope describes no alibi");
  EXPECT_EQ(ErrorOf([] {
              FindEncoding("rope").example({.options = {{"factor", "2"}}});
            }),
            "rope option factor has no use with scaling=none");
  EXPECT_EQ(ErrorOf([] { ParseOptions("kind"); }),
            "an option must be given as name=value, got 'kind'");
}

TEST(DescriptorTest, OptionsReadAsBefore) {
  EXPECT_EQ(FindEncoding("none").options_text(), "");
  EXPECT_EQ(FindEncoding("deberta").options_text(),
            "buckets, max_distance, c2p=true|false, p2c=true|false");
  EXPECT_EQ(FindEncoding("xpos").options_text(),
            "layout=interleaved|halves, base, scale_base, gamma");
}

TEST(DescriptorTest, VariantsHaveOneSpelling) {
  const Variant variant = FindVariant(" rope{ scaling=yarn , factor = 8 } ");
  EXPECT_EQ(variant.info->name, "rope");
  EXPECT_EQ(variant.Name(), "rope{factor=8,scaling=yarn}");
  EXPECT_EQ(FindVariant(variant.Name()).options, variant.options);
  EXPECT_EQ(FindVariant("alibi").Name(), "alibi");
  EXPECT_EQ(FindVariant("alibi{}").Name(), "alibi");
  // The variants that descriptors recommend are valid.
  for (const EncodingInfo& info : Encodings()) {
    for (const std::string_view options : info.variants) {
      const std::string text =
          std::string(info.name) + "{" + std::string(options) + "}";
      EXPECT_EQ(FindVariant(text).options, ParseOptions(options)) << text;
    }
  }
}

TEST(DescriptorTest, BadVariantsAreOneSentence) {
  const auto error = [](std::string_view text) {
    return ErrorOf([&] { FindVariant(text); });
  };
  EXPECT_EQ(error("rope{base=x}"),
            "rope option base must be a number, got 'x'");
  EXPECT_EQ(error("kerple{kind=cubic}"),
            "kerple option kind must be one of log, power, got 'cubic'");
  EXPECT_EQ(error("rope{base=1,base=2}"), "the option base is given twice");
  EXPECT_EQ(error("rope{=2}"),
            "an option must be given as name=value, got '=2'");
  for (const char* text : {"rope{base=1", "rope{base=1}}", "rope{base=1}x"}) {
    EXPECT_EQ(error(text),
              std::string("a variant is written as name{option=value, ...}, "
                          "got '") +
                  text + "'");
  }
}

}  // namespace
}  // namespace locus::testing
