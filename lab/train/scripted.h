// An encoding that Python wrote to a file (locus_attn.torch.save_encoding): a
// function of the offset as TorchScript, its parameters, and how they are
// trained.
#ifndef LOCUS_LAB_TRAIN_SCRIPTED_H_
#define LOCUS_LAB_TRAIN_SCRIPTED_H_

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lab/train/offset_table.h"

namespace locus::lab {

class ScriptedEncoding {
 public:
  struct Parameter {
    std::string name = {};
    torch::Tensor start = {};  // float32
    double rate = 1.0;         // multiplies the learning rate
    bool decays = false;
    double lowest = -std::numeric_limits<double>::infinity();
    double highest = std::numeric_limits<double>::infinity();
  };

  // Throws Error if the file is not such an encoding.
  static std::shared_ptr<const ScriptedEncoding> Open(const std::string& path);
  ~ScriptedEncoding();

  // Name of the file, without folder and extension.
  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::string& formula() const { return formula_; }
  const std::string& sha256() const { return sha256_; }  // of the file
  OffsetTerm term() const { return term_; }
  int64_t heads() const { return heads_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Throws Error if it does not support models with this many heads.
  void CheckHeads(int64_t heads) const;

  // The function's values at offsets first .. last, [heads, n] or
  // [heads, n, D], with these parameters in the order of parameters().
  // Differentiable in them. Throws Error if it does not return that.
  torch::Tensor At(int64_t first, int64_t last,
                   const std::vector<torch::Tensor>& parameters) const;

  // Whether a word of --encodings is a file rather than a name from the list.
  static bool IsFile(const std::string& word) { return word.ends_with(".pt"); }
  // The name of an encoding in such a file.
  static std::string NameOf(const std::string& path);

 private:
  struct Function;  // hides TorchScript's headers
  ScriptedEncoding();

  std::string name_, title_, formula_, sha256_;
  OffsetTerm term_ = OffsetTerm::kBias;
  int64_t heads_ = 0;
  std::vector<Parameter> parameters_;
  std::unique_ptr<Function> function_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_SCRIPTED_H_
