// What the commands share: arguments that name an encoding, and output.
#ifndef LOCUS_CLI_APP_H_
#define LOCUS_CLI_APP_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/answers/answers.h"
#include "locus/descriptor.h"

namespace locus::cli {

// Exit codes: fine; it ran and the answer is no; bad usage or input.
inline constexpr int kFine = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;

// Encodings on the command line.
struct EncodingArgs {
  std::vector<std::string> names = {};    // "rope", "rope{base=100}"
  std::vector<std::string> options = {};  // name=value, of all of them
  SizeTexts sizes = {};

  void AddTo(CLI::App& command);
  // Sizes and options. Throws Error for a number out of range or an option
  // without a value.
  ExampleConfig Config() const;
  // The encodings. Throws Error for one that there is not, or for its options.
  std::vector<Chosen> Read() const;
};

// The options of an encoding with their defaults and ranges, in words.
std::string OptionsHelp(const EncodingInfo& info);
// The object of one encoding as it is, those of several as {encodings: [...]}.
Json OneOrAll(Json list);

// Writes to standard output. A reader that has gone away ends the program
// quietly; any other failure throws Error. What could steer a terminal is
// escaped: names in the text may come from files.
void Emit(const std::string& text);
// The same of text with colours of the tool's own, as it is.
void EmitColoured(const std::string& text);
void EmitJson(const Json& json);
// JSON in ASCII: what is not is escaped, and bytes that are no UTF-8 replaced.
std::string JsonText(const Json& json);
// Whole or not at all, as locus/files.h says.
void SaveJson(const Json& json, const std::string& path);

// Columns of the terminal: $COLUMNS, else the terminal's own, else 100.
int TerminalWidth();
// Whether colours and Unicode belong on standard output.
bool StdoutIsTerminal();

// Text broken at spaces into lines of at most `width` columns.
std::vector<std::string> Wrap(std::string_view text, size_t width);

// The commands. Each adds itself to the tool; `code` receives its exit code.
void AddList(CLI::App& app, int& code);
void AddShow(CLI::App& app, int& code);
void AddCheck(CLI::App& app, int& code);
void AddExplain(CLI::App& app, int& code);
void AddConvertLayout(CLI::App& app, int& code);
void AddBench(CLI::App& app, int& code);
void AddVersion(CLI::App& app, int& code);

}  // namespace locus::cli

#endif  // LOCUS_CLI_APP_H_
