// Shared code of the commands: arguments that name an encoding, and output.
#ifndef LOCUS_CLI_APP_H_
#define LOCUS_CLI_APP_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/answers/answers.h"
#include "locus/descriptor.h"

namespace locus::cli {

// Exit codes: success; it ran and the answer is no; bad usage or input.
inline constexpr int kFine = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;

// Encodings on the command line.
struct EncodingArgs {
  std::vector<std::string> names = {};    // "rope", "rope{base=100}"
  std::vector<std::string> options = {};  // name=value, for all of them
  SizeTexts sizes = {};

  void AddTo(CLI::App& command);
  // Sizes and options. Throws Error for a number that is out of range or an
  // option without a value.
  ExampleConfig Config() const;
  // The encodings. Throws Error for an unknown one, or for invalid options.
  std::vector<Chosen> Read() const;
};

// The options of an encoding with their defaults and ranges, as text.
std::string OptionsHelp(const EncodingInfo& info);
// The object of a single encoding as it is, those of several as {encodings:
// [...]}.
Json OneOrAll(Json list);

// Writes to standard output. If the reader has closed it, the program ends
// quietly; any other failure throws Error. Control characters are escaped,
// since names in the text may come from files.
void Emit(const std::string& text);
// The same without escaping, for text with the tool's own colours.
void EmitColoured(const std::string& text);
void EmitJson(const Json& json);
// JSON in ASCII: other characters are escaped, and invalid UTF-8 is replaced.
std::string JsonText(const Json& json);
// Writes the file completely or not at all (locus/files.h).
void SaveJson(const Json& json, const std::string& path);

// Columns of the terminal: $COLUMNS, else the terminal's width, else 100.
int TerminalWidth();
// Whether standard output is a terminal, to which colours and Unicode may go.
bool StdoutIsTerminal();

// Text wrapped at spaces into lines of at most `width` columns.
std::vector<std::string> Wrap(std::string_view text, size_t width);

// The commands. Each registers itself with the tool; `code` receives its exit
// code.
void AddList(CLI::App& app, int& code);
void AddShow(CLI::App& app, int& code);
void AddCheck(CLI::App& app, int& code);
void AddExplain(CLI::App& app, int& code);
void AddConvertLayout(CLI::App& app, int& code);
void AddBench(CLI::App& app, int& code);
void AddVersion(CLI::App& app, int& code);

}  // namespace locus::cli

#endif  // LOCUS_CLI_APP_H_
