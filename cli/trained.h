// Parameters that the lab trained for pictures: web/data/trained.json, written
// by tools/trained_tables.sh.
#ifndef LOCUS_CLI_TRAINED_H_
#define LOCUS_CLI_TRAINED_H_

#include <memory>
#include <string>

#include "cli/answers/answers.h"

namespace locus::cli {

class TrainedFile {
 public:
  // Throws Error if `path` is not such a file.
  explicit TrainedFile(const std::string& path);

  // The sizes and options of the models that were trained, in place of those of
  // `chosen`. Throws Error if the file has no parameters of this encoding, or
  // if `chosen` has options of its own: parameters fit the ones trained with.
  Chosen Resized(const Chosen& chosen) const;

  // The encoding of Resized(chosen) with its trained parameters.
  std::unique_ptr<Encoding> Build(const Chosen& resized) const;

  // One line that says how they were trained.
  std::string Note(const Chosen& resized) const;

 private:
  const Json& Find(const Chosen& chosen) const;

  std::string path_;
  Json file_;
};

}  // namespace locus::cli

#endif  // LOCUS_CLI_TRAINED_H_
