#include "lab/study/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "lab/study/job.h"
#include "lab/study/stop.h"
#include "lab/study/study.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

void SendLine(int fd, std::string line) {
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t put = write(fd, rest.data(), rest.size());
    if (put <= 0) return;  // the reader is gone: SIGTERM will follow
    rest.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace

int RunWorker(const WorkerOptions& options) {
  // Ctrl-C on a terminal reaches every process; the parent decides and forwards
  // it.
  InstallSignalHandlers(/*interrupt=*/false);
  const auto report = [&](const std::string& line) {
    SendLine(options.events, line);
  };
  JobOutcome outcome{.code = kWorkerFailed};
  try {
    const auto study = OpenStudy(options.folder);
    if (!study) {
      throw Error(
          fmt::format("there is no study in {}", options.folder.string()));
    }
    outcome = TryJob({.study = *study,
                      .job = study->Find(options.job),
                      .save_every = options.save_every,
                      .report = report});
  } catch (const Error& e) {
    outcome.error = e.what();
  }
  if (!outcome.error.empty()) report(fmt::format("error {}", outcome.error));
  return outcome.code;
}

}  // namespace locus::lab
