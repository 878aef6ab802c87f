// locus ring bench: time, bytes moved, overlap, memory per rank, and efficiency
// from 1 to n ranks, all in one run.
// Rows are measured in rounds: each round runs every number of ranks once, so
// that a slowdown of the machine affects all of them. Ranks without work sleep.
// The best round counts.
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <map>

#include "locus/simd.h"
#include "locus/version.h"
#include "ring/agreement/metadata.h"
#include "ring/attention/pairs.h"
#include "ring/blocks/kv_ring.h"
#include "ring/cli/case.h"
#include "ring/cli/session.h"

namespace locus::ring {
namespace {

// The communicator of the first `count` ranks; null on the others. Creating one
// has no deadline in MPI, so each is created once, right after a barrier.
class FirstRanks {
 public:
  FirstRanks(const Group& world, int count) {
    world.Barrier();
    MPI_Comm_split(world.comm(), world.rank() < count ? 0 : MPI_UNDEFINED,
                   world.rank(), &comm_);
  }
  ~FirstRanks() {
    // Freeing could wait for messages in flight.
    if (comm_ != MPI_COMM_NULL && std::uncaught_exceptions() == 0) {
      MPI_Comm_free(&comm_);
    }
  }
  FirstRanks(const FirstRanks&) = delete;
  FirstRanks& operator=(const FirstRanks&) = delete;
  MPI_Comm comm() const { return comm_; }
  bool Contains() const { return comm_ != MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// mpirun binds each rank to a core. Then a single process could not use all of
// them, and the comparison with it would be unfair.
void UseEveryCore() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof(all), &all);
}

// CPU time of all threads of this process.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// The peak resident memory of this process since ResetPeak, in bytes.
double PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "VmHWM:" && status >> kilobytes) return 1024.0 * kilobytes;
  }
  return 0.0;
}

void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

// Measurements of one rank, or of all of them combined.
struct Measured {
  double seconds = 0.0;          // the slowest rank
  double cpu_seconds = 0.0;      // sum; unaffected by other load on the machine
  double compute_seconds = 0.0;  // mean
  double wait_seconds = 0.0;     // mean
  double alone_seconds = 0.0;    // transfers without computing, the slowest
  double bytes_sent = 0.0;       // sum
  double peak_bytes = 0.0;       // largest
};

Measured Join(const Group& group, const Measured& mine) {
  const std::string_view raw(reinterpret_cast<const char*>(&mine),
                             sizeof(mine));
  Measured all;
  const double share = 1.0 / group.size();
  for (const std::string& text : group.Gather(raw)) {
    Measured one;
    std::memcpy(&one, text.data(), sizeof(one));
    all.seconds = std::max(all.seconds, one.seconds);
    all.cpu_seconds += one.cpu_seconds;
    all.compute_seconds += share * one.compute_seconds;
    all.wait_seconds += share * one.wait_seconds;
    all.alone_seconds = std::max(all.alone_seconds, one.alone_seconds);
    all.bytes_sent += one.bytes_sent;
    all.peak_bytes = std::max(all.peak_bytes, one.peak_bytes);
  }
  return all;
}

struct Row {
  std::string pass = "forward";
  int ranks = 1;
  int threads = 1;
  bool whole = false;  // one process without the ring
  Measured best = {};

  // The share of the transfer time that was hidden behind computation. Waiting
  // for a slower rank reduces it.
  double Overlap() const {
    if (best.alone_seconds <= 0.0) return 1.0;
    return std::clamp(1.0 - best.wait_seconds / best.alone_seconds, 0.0, 1.0);
  }
};

class Bencher {
 public:
  Bencher(const Case& c, const BenchArgs& args)
      : case_(c),
        encoding_(c.Example(FindEncoding(args.encoding).name)),
        sharding_(FindSharding(args.sharding)),
        world_(MPI_COMM_WORLD, c.deadline_seconds) {}

  // One round of one row; keeps the best.
  void Run(Row& row, bool first_round) {
    const FirstRanks& ranks =
        comms_.try_emplace(row.ranks, world_, row.ranks).first->second;
    if (ranks.Contains()) {
      const Group group(ranks.comm(), case_.deadline_seconds);
      if (first_round) ResetPeak();
      Measured now = Join(group, Measure(group, row));
      const double peak = first_round ? now.peak_bytes : row.best.peak_bytes;
      if (first_round || now.seconds < row.best.seconds) row.best = now;
      row.best.peak_bytes = peak;
    }
    world_.Barrier();
  }

 private:
  Measured Measure(const Group& group, const Row& row) const {
    const std::vector<Chunk> chunks =
        Shard(sharding_, case_.length, group.rank(), group.size());
    const Inputs x(case_, chunks);
    Stats stats;
    Options options{.attention = case_.Options(),
                    .sharding = sharding_,
                    .deadline_seconds = case_.deadline_seconds,
                    .stats = &stats};
    AttentionOptions& o = options.attention;
    o.threads = row.threads;
    const bool backward = row.pass == "backward";
    AttentionResult forward;
    Tensor d_out;
    const auto attend = [&] {
      return row.whole
                 ? locus::Attention(x.q, x.k, x.v, *encoding_, o)
                 : Attention(group.comm(), x.q, x.k, x.v, *encoding_, options);
    };
    if (backward) {
      forward = attend();
      d_out = Numbers(case_, Kind::kDOut, case_.heads, chunks);
    }
    Measured mine;
    group.Barrier();
    const double cpu_before = CpuSeconds();
    {
      const Stopwatch watch(mine.seconds);
      if (!backward) {
        forward = attend();
      } else if (row.whole) {
        locus::AttentionBackward(d_out, x.q, x.k, x.v, forward, *encoding_, o);
      } else {
        AttentionBackward(group.comm(), d_out, x.q, x.k, x.v, forward,
                          *encoding_, options);
      }
    }
    mine.cpu_seconds = CpuSeconds() - cpu_before;
    mine.peak_bytes = PeakBytes();
    mine.compute_seconds = row.whole ? mine.seconds : stats.compute_seconds;
    mine.wait_seconds = stats.wait_seconds;
    mine.bytes_sent = static_cast<double>(stats.bytes_sent);
    if (!row.whole && group.size() > 1) {
      mine.alone_seconds = MessagesAlone(group, x, options);
      // Gradients travel in addition: they are float32, keys and values have
      // the given type.
      if (backward) {
        mine.alone_seconds *=
            1.0 + 4.0 / static_cast<double>(DTypeBytes(case_.dtype));
      }
    }
    return mine;
  }

  // The same blocks around the same ring, without computing.
  double MessagesAlone(const Group& group, const Inputs& x,
                       const Options& options) const {
    const Call call = ExchangeMetadata(group, {.q = x.q,
                                               .k = x.k,
                                               .v = x.v,
                                               .encoding = *encoding_,
                                               .options = options});
    const Neighbours ring{.rank = group.rank(), .size = group.size()};
    AsyncTransport transport(group);
    KvRing kv_ring(call, transport, ring,
                   OwnBlock(call, ring.rank, x.k, x.v, options.attention));
    group.Barrier();
    for (int step = 0; step < ring.size; ++step) {
      kv_ring.Begin(step);
      kv_ring.End();
    }
    return transport.wait_seconds();
  }

  const Case& case_;
  std::unique_ptr<Encoding> encoding_;
  Sharding sharding_;
  Group world_;
  std::map<int, FirstRanks> comms_ = {};
};

std::vector<int> RankCounts(const BenchArgs& args, int size) {
  std::vector<int> counts;
  for (const std::string& text : args.ranks) {
    counts.push_back(
        static_cast<int>(cli::ReadNumber("--ranks", text, 1, size)));
  }
  if (!counts.empty()) return counts;
  for (int n = 1; n < size; n *= 2) counts.push_back(n);
  counts.push_back(size);
  return counts;
}

// Most ranks first, so that memory left in the allocator by a small share does
// not hide the needs of a larger one. A single process comes last.
std::vector<Row> Rows(const Case& c, const BenchArgs& args, int size) {
  std::vector<int> counts = RankCounts(args, size);
  std::ranges::sort(counts, std::greater<>());
  std::vector<Row> rows;
  std::vector<std::string> passes = {"forward"};
  if (args.backward) passes.emplace_back("backward");
  for (const std::string& pass : passes) {
    for (int n : counts) {
      rows.push_back({.pass = pass, .ranks = n, .threads = c.threads});
    }
    if (args.ranks.empty()) {
      rows.push_back(
          {.pass = pass, .threads = size * c.threads, .whole = true});
    }
  }
  return rows;
}

// The speed of one row relative to another.
double SpeedOver(const Row& row, const Row& other) {
  return other.best.seconds / row.best.seconds;
}

const Row* Find(const std::vector<Row>& rows, const Row& like, bool whole) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.pass == like.pass && row.whole == whole &&
           (whole || row.ranks == 1);
  });
  return found == rows.end() ? nullptr : &*found;
}

cli::Json ToJson(const std::vector<Row>& rows, const Row& row) {
  cli::Json json = {{"pass", row.pass},
                    {"ranks", row.ranks},
                    {"threads", row.threads},
                    {"ring", !row.whole},
                    {"seconds", row.best.seconds},
                    {"cpu_seconds", row.best.cpu_seconds},
                    {"compute_seconds", row.best.compute_seconds},
                    {"wait_seconds", row.best.wait_seconds},
                    {"messages_alone_seconds", row.best.alone_seconds},
                    {"overlap", row.Overlap()},
                    {"bytes_sent", row.best.bytes_sent},
                    {"peak_bytes_a_rank", row.best.peak_bytes}};
  if (row.whole) return json;
  if (const Row* one = Find(rows, row, /*whole=*/false)) {
    json["efficiency"] = SpeedOver(row, *one) / row.ranks;
  }
  const Row* whole = Find(rows, row, /*whole=*/true);
  if (whole != nullptr && row.ranks * row.threads == whole->threads) {
    json["speed_over_one_process"] = SpeedOver(row, *whole);
  }
  return json;
}

std::string Table(const cli::Json& rows) {
  std::string text = fmt::format(
      "{:<10}{:>6}{:>8}{:>10}{:>9}{:>11}{:>9}{:>9}{:>8}{:>9}{:>8}\n", "pass",
      "ranks", "threads", "seconds", "cpu s", "efficiency", "sent MB", "waited",
      "alone", "overlap", "MB/rank");
  const auto optional = [](const cli::Json& row, const char* key) {
    return row.contains(key) ? fmt::format("{:.2f}", row[key].get<double>())
                             : std::string("-");
  };
  std::string verdict;
  for (const cli::Json& row : rows) {
    const bool ring = row["ring"].get<bool>();
    const auto number = [&row](const char* key) {
      return row[key].get<double>();
    };
    text += fmt::format(
        "{:<10}{:>6}{:>8}{:>10.3f}{:>9.3f}{:>11}{:>9.1f}{:>9.3f}{:>8.3f}{:>9."
        "2f}"
        "{:>8.0f}\n",
        row["pass"].get<std::string>(),
        ring ? std::to_string(row["ranks"].get<int>()) : "none",
        row["threads"].get<int>(), number("seconds"), number("cpu_seconds"),
        optional(row, "efficiency"), number("bytes_sent") * 1e-6,
        number("wait_seconds"), number("messages_alone_seconds"),
        number("overlap"), number("peak_bytes_a_rank") * 1e-6);
    if (row.contains("speed_over_one_process")) {
      verdict += fmt::format(
          "{}: {} ranks x {} threads reach {:.2f} of the speed of one process "
          "with all threads\n",
          row["pass"].get<std::string>(), row["ranks"].get<int>(),
          row["threads"].get<int>(), number("speed_over_one_process"));
    }
  }
  return text + verdict;
}

}  // namespace

int Bench(const BenchArgs& args) {
  Case c(args.common);
  c.causal = !args.full;
  const int repeats =
      static_cast<int>(cli::ReadNumber("--repeat", args.repeats, 1, 1000));
  UseEveryCore();
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<Row> rows = Rows(c, args, size);
  Bencher bencher(c, args);
  for (int round = 0; round < repeats; ++round) {
    for (Row& row : rows) bencher.Run(row, round == 0);
  }
  OnFirstRank(Group(MPI_COMM_WORLD, c.deadline_seconds), [&] {
    cli::Json json = {{"version", Version()},      {"simd", SimdTarget()},
                      {"encoding", args.encoding}, {"sharding", args.sharding},
                      {"causal", c.causal},        {"repeats", repeats},
                      {"case", c.ToJson()}};
    for (const Row& row : rows) json["rows"].push_back(ToJson(rows, row));
    if (!args.common.save.empty()) cli::SaveJson(json, args.common.save);
    cli::Emit(args.common.json
                  ? cli::JsonText(json)
                  : fmt::format("{}, {} tokens, {} heads of {}, {}, "
                                "{}, {}\n{}",
                                args.encoding, c.length, c.heads, c.dim,
                                DTypeName(c.dtype),
                                c.causal ? "causal" : "full", args.sharding,
                                Table(json["rows"])));
  });
  return cli::kFine;
}

}  // namespace locus::ring
