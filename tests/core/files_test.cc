// Outputs are complete or absent, and replace only regular files.
#include "locus/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

// What was synced, in order, and whether the final name existed then. The
// linker resolves the library's fsync to this function rather than libc's.
namespace {
struct Synced {
  bool is_folder;
  std::string path;
  bool finished;  // whether a file of the final name is there
};
std::vector<Synced> synced;
std::string final_name;
}  // namespace

extern "C" int fsync(int file) {
  struct stat status {};
  fstat(file, &status);
  std::error_code error;
  synced.push_back({.is_folder = S_ISDIR(status.st_mode),
                    .path = std::filesystem::read_symlink(
                                "/proc/self/fd/" + std::to_string(file), error)
                                .string(),
                    .finished = std::filesystem::exists(final_name, error)});
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace locus {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() / ("locus_files_" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return (folder_ / name).string();
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  size_t Count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), {}));
  }
  static std::string Refusal(const std::string& path) {
    try {
      WriteOutput(path, "new");
    } catch (const OutputError& e) {
      EXPECT_NE(e.code(), 0);
      return e.what();
    }
    return "written";
  }

  fs::path folder_;
};

TEST_F(FilesTest, AppearWhenTheyAreWhole) {
  const std::string path = Path("out");
  {
    OutputFile file(path);
    file.Write("half");
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(IsUnfinishedOutput(fs::path(file.beside()).filename().string()))
        << file.beside();
    file.Write(" and half");
    file.Finish();
    EXPECT_EQ(Read(path), "half and half");
  }
  EXPECT_EQ(Count(), 1U);
  {
    OutputFile file(path);
    file.Write("never finished");
  }
  EXPECT_EQ(Read(path), "half and half");
  EXPECT_EQ(Count(), 1U);
}

// After a power failure, there is the old file or the new one: the bytes reach
// the disk before the name does, and the name is on disk when Finish returns.
TEST_F(FilesTest, BytesAreSyncedBeforeTheNameAndThenTheFolder) {
  final_name = Path("out");
  synced.clear();
  OutputFile file(final_name);
  const std::string beside = file.beside();
  file.Write("whole");
  EXPECT_TRUE(synced.empty());
  file.Finish();
  ASSERT_EQ(synced.size(), 2U);
  EXPECT_FALSE(synced[0].is_folder);
  EXPECT_FALSE(synced[0].finished);
  EXPECT_EQ(synced[0].path,
            fs::canonical(folder_) / fs::path(beside).filename());
  EXPECT_TRUE(synced[1].is_folder);
  EXPECT_TRUE(synced[1].finished);
  EXPECT_EQ(synced[1].path, fs::canonical(folder_));
}

TEST_F(FilesTest, TwoOfOneNameDoNotMeet) {
  OutputFile a(Path("out")), b(Path("out"));
  EXPECT_NE(a.beside(), b.beside());
  a.Write("a");
  b.Write("b");
  a.Finish();
  b.Finish();
  EXPECT_EQ(Read(Path("out")), "b");
}

// Renaming would replace them by a regular file: /dev/null, for root.
TEST_F(FilesTest, DevicesPipesAndFoldersAreRefused) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_directory(Path("folder"));
  EXPECT_EQ(Refusal(Path("pipe")),
            "cannot write '" + Path("pipe") +
                "': it exists and is not a regular file");
  EXPECT_EQ(Refusal(Path("folder")),
            "cannot write '" + Path("folder") + "': it is a folder");
  EXPECT_EQ(Refusal(Path("folder/")), "cannot write '" + Path("folder/") +
                                          "': that is no name of a file");
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
  EXPECT_EQ(Count(), 2U);
  EXPECT_THROW(CheckOutput("/dev/null"), OutputError);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FilesTest, LinksAreFollowedAndStay) {
  WriteOutput(Path("target"), "old");
  fs::create_symlink("target", Path("link"));
  fs::create_symlink("nowhere", Path("dangling"));
  fs::create_symlink("/dev/null", Path("null"));
  EXPECT_EQ(Refusal(Path("link")), "written");
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("target")), "new");
  EXPECT_EQ(Refusal(Path("dangling")),
            "cannot write '" + Path("dangling") +
                "': it is a symbolic link that points to no file");
  EXPECT_EQ(Refusal(Path("null")),
            "cannot write '" + Path("null") +
                "': it exists and is not a regular file");
  EXPECT_EQ(Count(), 4U);
}

TEST_F(FilesTest, PermissionsStay) {
  WriteOutput(Path("secret"), "old");
  fs::permissions(Path("secret"), fs::perms::owner_read);
  WriteOutput(Path("secret"), "new");
  EXPECT_EQ(fs::status(Path("secret")).permissions(), fs::perms::owner_read);
}

TEST_F(FilesTest, LongNamesAndBadPlaces) {
  EXPECT_EQ(Refusal(Path(std::string(255, 'x'))), "written");
  EXPECT_EQ(Refusal(Path("no/such/folder")),
            "cannot write '" + Path("no/such/folder") +
                "': No such file or directory");
  EXPECT_EQ(Refusal(""), "cannot write '': that is no name of a file");
  // Foreign names in messages cannot control a terminal.
  EXPECT_EQ(Refusal("/\x1b[31m/x"),
            "cannot write '/\\x1b[31m/x': No such file or directory");
}

TEST_F(FilesTest, AFolderAppearsWhole) {
  {
    OutputFolder folder(Path("many"));
    WriteOutput(folder.File("a"), "1");
    EXPECT_FALSE(fs::exists(Path("many")));
  }
  EXPECT_EQ(Count(), 0U);
  {
    OutputFolder folder(Path("many/"));
    WriteOutput(folder.File("a"), "1");
    folder.Finish();
  }
  EXPECT_EQ(Read(Path("many/a")), "1");
  EXPECT_THROW(OutputFolder(Path("many")), OutputError);
  fs::create_symlink("nowhere", Path("dangling"));
  EXPECT_THROW(OutputFolder(Path("dangling")), OutputError);
  EXPECT_EQ(Count(), 2U);
}

TEST_F(FilesTest, NamesOfUnfinishedOutputs) {
  for (const char* name : {"a.1-0.part", "a.b.12-345.part", ".x.7-1.part"}) {
    EXPECT_TRUE(IsUnfinishedOutput(name)) << name;
  }
  for (const char* name : {"a.part", "a.1.part", "a.1-.part", "a.-1.part",
                           ".1-0.part", "1-0.part", "a.1-0", "a.1-0.part.gz"}) {
    EXPECT_FALSE(IsUnfinishedOutput(name)) << name;
  }
}

// In a separate process, which this ends.
TEST_F(FilesTest, AbandonedOutputsAreGone) {
  EXPECT_EXIT(
      {
        OutputFile file(Path("file"));
        file.Write("half");
        OutputFolder folder(Path("folder"));
        WriteOutput(folder.File("a"), "1");
        AbandonOutputs();
        _exit(static_cast<int>(Count()));
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EQ(Count(), 0U);
}

}  // namespace
}  // namespace locus
