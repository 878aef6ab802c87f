// Files are complete or absent, and damage is detected.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "lab/study/store.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

class CompareStoreTest : public testing::Test {
 protected:
  CompareStoreTest()
      : folder_(fs::path(testing::TempDir()) /
                ("compare_store_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    MakeFolder(folder_);
  }
  ~CompareStoreTest() override { fs::remove_all(folder_); }

  static std::string Complaint(const fs::path& path) {
    try {
      ReadCheckpoint(path);
    } catch (const DamageError& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(CompareStoreTest, CheckpointsComeBack) {
  const fs::path path = folder_ / "checkpoint";
  const Json json = {
      {"step", 3}, {"x", 0.1}, {"model", Json::binary({0, 255, ' ', '\n'})}};
  WriteCheckpoint(path, json);
  EXPECT_EQ(ReadCheckpoint(path), json);
  WriteCheckpoint(path, {{"step", 4}});
  EXPECT_EQ(ReadCheckpoint(path), Json({{"step", 4}}));
}

TEST_F(CompareStoreTest, RemovesWhatKilledProcessesLeft) {
  MakeFolder(folder_ / "runs" / "text");
  const fs::path unfinished[] = {folder_ / "results.json.12-0.part",
                                 folder_ / "runs" / "text" / "log.7-31.part"};
  const fs::path kept[] = {folder_ / "results.json", folder_ / "mine.part",
                           folder_ / "12-0.part", folder_ / "model.7.part",
                           folder_ / "runs" / "text" / "checkpoint"};
  for (const auto& path : unfinished) WriteFile(path, "half");
  for (const auto& path : kept) WriteFile(path, "whole");
  RemoveUnfinished(folder_);
  for (const auto& path : unfinished) EXPECT_FALSE(fs::exists(path)) << path;
  for (const auto& path : kept) EXPECT_TRUE(fs::exists(path)) << path;
  RemoveUnfinished(folder_ / "nowhere");
}

TEST_F(CompareStoreTest, EveryDamageIsFound) {
  const fs::path path = folder_ / "checkpoint";
  WriteCheckpoint(path, {{"step", 3}, {"model", "0123456789"}});
  const std::string good = ReadFile(path);
  // One bit of each byte, and every truncated length.
  for (size_t n = 0; n < good.size(); ++n) {
    std::string bad = good;
    bad[n] = static_cast<char>(bad[n] ^ 4);
    WriteFile(path, bad);
    const std::string flipped = Complaint(path);
    EXPECT_NE(flipped.find(path.string() + " is damaged"), std::string::npos)
        << "byte " << n;
    WriteFile(path, good.substr(0, n));
    EXPECT_NE(Complaint(path), "") << n << " bytes";
  }
  WriteFile(path, good + "x");
  EXPECT_NE(Complaint(path), "");
  WriteFile(path, good);
  EXPECT_EQ(Complaint(path), "");
}

TEST_F(CompareStoreTest, SealedJsonFindsAChangedDigit) {
  const fs::path path = folder_ / "result.json";
  WriteSealedJson(path, {{"loss", 1.25}});
  EXPECT_EQ(ReadSealedJson(path), Json({{"loss", 1.25}}));
  std::string text = ReadFile(path);
  text.replace(text.find("1.25"), 4, "1.26");
  WriteFile(path, text);
  EXPECT_THROW(ReadSealedJson(path), Error);
  WriteFile(path, "{");
  EXPECT_THROW(ReadSealedJson(path), Error);
}

TEST_F(CompareStoreTest, FullDiskLeavesTheOldFile) {
  const fs::path path = folder_ / "checkpoint";
  WriteFile(path, "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string complaint;
  try {
    WriteFile(path, std::string(1000, 'x'));
  } catch (const StorageError& e) {
    complaint = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(complaint.find("cannot write '" + path.string()), std::string::npos)
      << complaint;
  EXPECT_NE(complaint.find("--resume"), std::string::npos) << complaint;
  EXPECT_EQ(ReadFile(path), "old");
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(folder_)) {
    ++files;
  }
  EXPECT_EQ(files, 1U) << "something half-written was left";
}

}  // namespace
}  // namespace locus::lab
