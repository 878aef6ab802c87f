// What the commands share: arguments that name an encoding, and output.
#ifndef LOCUS_CLI_APP_H_
#define LOCUS_CLI_APP_H_

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "locus/encoding.h"

namespace locus::cli {

// Exit codes: fine; it ran and the answer is no; bad usage or input.
inline constexpr int kFine = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

// An encoding on the command line. Numbers stay text until they are read, so
// that a bad one gets a sentence of its own.
struct EncodingArgs {
  std::string name = {};
  std::vector<std::string> options = {};  // name=value
  std::string heads = "8";
  std::string dim = "64";
  std::string length = "128";
  std::string seed = "1";

  void AddTo(CLI::App& command);
  // Throws Error for a number out of range or an option without a value.
  ExampleConfig Config() const;
};

// A whole number in [lowest, highest] from the text given with `flag`; throws
// Error otherwise.
int64_t ReadNumber(const char* flag, const std::string& text, int64_t lowest,
                   int64_t highest);

// The shape of a self-attention call of an example.
Shape ShapeOf(const ExampleConfig& config);

// The settings and terms of an example, as JSON.
Json ConfigJson(const ExampleConfig& config);
// NaN becomes null.
Json NumberJson(double value);

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
