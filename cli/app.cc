#include "cli/app.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "locus/error.h"
#include "locus/files.h"
#include "locus/text.h"

namespace locus::cli {
void EncodingArgs::AddTo(CLI::App& command) {
  command
      .add_option("encodings", names,
                  "names of locus list, with options as in rope{base=100}")
      ->required();
  command
      .add_option("-o,--option", options,
                  "an option of every encoding, name=value; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--heads", sizes.heads, "number of heads")
      ->capture_default_str();
  command.add_option("--dim", sizes.dim, "channels of a head")
      ->capture_default_str();
  command.add_option("--length", sizes.length, "trained length")
      ->capture_default_str();
  command.add_option("--seed", sizes.seed, "seed of random tables and tokens")
      ->capture_default_str();
}

ExampleConfig EncodingArgs::Config() const {
  ExampleConfig config = ReadSizes(sizes);
  for (const std::string& option : options) {
    const size_t at = option.find('=');
    if (at == std::string::npos || at == 0) {
      throw Error(fmt::format("an option must be given as name=value, got '{}'",
                              option));
    }
    config.options[option.substr(0, at)] = option.substr(at + 1);
  }
  return config;
}

std::vector<Chosen> EncodingArgs::Read() const {
  const ExampleConfig config = Config();
  std::vector<Chosen> all;
  for (const std::string& name : names) {
    Variant variant = FindVariant(name);
    for (const auto& [option, value] : config.options) {
      variant.options.emplace(option, value);
    }
    all.push_back(
        {.name = variant.Name(), .info = variant.info, .config = config});
    all.back().config.options = variant.options;
  }
  return all;
}

namespace {

// "base=10000.0: of the frequencies; 10 to 10000000"
std::string OptionHelp(const Field& option) {
  std::string text(option.name);
  if (option.type == FieldType::kChoice) {
    text += fmt::format("={}", option.choices);
  } else if (option.type == FieldType::kFlag) {
    text += "=true|false";
  }
  text += fmt::format(": {}", option.sentence);
  std::string fallback(option.fallback);
  if (option.type == FieldType::kFlag) {
    fallback = fallback == "True" ? "true" : "false";
  }
  if (fallback != "None") text += fmt::format("; {} unless given", fallback);
  if (option.slider.defined()) {
    text += fmt::format("; from {} to {}", option.slider.lowest,
                        option.slider.highest);
  }
  return text;
}

}  // namespace

std::string OptionsHelp(const EncodingInfo& info) {
  if (info.options.empty()) {
    return fmt::format("{} has no options\n", info.name);
  }
  std::string text = fmt::format("Options of {}, -o name=value:\n", info.name);
  for (const Field& option : info.options) {
    bool first = true;
    const auto width = static_cast<size_t>(std::max(TerminalWidth() - 4, 20));
    for (const std::string& line : Wrap(OptionHelp(option), width)) {
      text += fmt::format("{}{}\n", first ? "  " : "    ", line);
      first = false;
    }
  }
  return text;
}

Json OneOrAll(Json list) {
  if (list.size() == 1) return std::move(list[0]);
  return {{"encodings", std::move(list)}};
}

void Emit(const std::string& text) {
  EmitColoured(EscapeControls(text, /*keep_lines=*/true));
}

void EmitColoured(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  if (written) return;
  if (errno == EPIPE) std::_Exit(kFine);
  throw Error(
      fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

void EmitJson(const Json& json) { EmitColoured(JsonText(json)); }

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace) +
         "\n";
}

int TerminalWidth() {
  // Tables are unreadable below this width.
  constexpr int kLeast = 40, kUsual = 100;
  if (const char* columns = std::getenv("COLUMNS")) {
    const int given = std::atoi(columns);
    if (given > 0) return std::max(given, kLeast);
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::max<int>(size.ws_col, kLeast);
  }
  return kUsual;
}

void SaveJson(const Json& json, const std::string& path) {
  WriteOutput(path, JsonText(json));
}

bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

std::vector<std::string> Wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(at, end - at);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
    at = end + 1;
  }
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace locus::cli
