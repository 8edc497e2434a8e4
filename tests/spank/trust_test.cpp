// What root may run and read. Files here belong to whoever runs the test, which counts like root.
#include "trust.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "support.h"

namespace ms::spank {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class TrustTest : public SpankTest {
 protected:
  std::string folder_of(const std::string& name, mode_t mode) const {
    const std::string path = folder + "/" + name;
    fs::create_directories(path);
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string problem(const std::string& path, Kind kind = Kind::file) { return trusted(path, kind).problem; }
};

TEST_F(TrustTest, RootsOwnIsTrusted) {
  EXPECT_EQ(problem("/etc/passwd"), "");
  EXPECT_EQ(problem("/bin/sh", Kind::program), "");
  EXPECT_EQ(trusted("/bin/sh", Kind::program).path, fs::canonical("/bin/sh").string());
  const std::string own = file("own", "", 0644);
  EXPECT_EQ(trusted(own, Kind::file).path, own);
}

TEST_F(TrustTest, ModesDecide) {
  struct Row {
    mode_t mode;
    Kind kind;
    const char* problem;
  };
  for (const Row& row :
       {Row{0644, Kind::file, ""}, Row{0600, Kind::file, ""}, Row{0664, Kind::file, "written by others"},
        Row{0646, Kind::file, "written by others"}, Row{0755, Kind::program, ""}, Row{0500, Kind::program, ""},
        Row{0777, Kind::program, "written by others"}, Row{0775, Kind::program, "written by others"},
        Row{0644, Kind::program, "not executable"}}) {
    const std::string path = file("it", "", row.mode);
    const std::string said = problem(path, row.kind);
    if (*row.problem == '\0') {
      EXPECT_EQ(said, "") << std::oct << row.mode;
    } else {
      EXPECT_THAT(said, HasSubstr(row.problem)) << std::oct << row.mode;
    }
  }
}

TEST_F(TrustTest, EveryFolderOnTheWayDecides) {
  for (const auto& [mode, is_good] :
       {std::pair{0755, true}, {0700, true}, {0775, false}, {0777, false}, {01777, true}}) {
    const std::string outer = folder_of("outer", 0755);
    fs::create_directories(outer + "/inner");
    chmod((outer + "/inner").c_str(), 0755);
    std::ofstream(outer + "/inner/it") << "";
    chmod(outer.c_str(), static_cast<mode_t>(mode));
    EXPECT_EQ(problem(outer + "/inner/it").empty(), is_good) << std::oct << mode;
    EXPECT_EQ(problem(outer + "/../outer//./inner/it").empty(), is_good) << std::oct << mode;
  }
}

TEST_F(TrustTest, LinksAreFollowedAndTheirFoldersLookedAt) {
  const std::string good = file("good", ""), open_folder = folder_of("open", 0777), closed = folder_of("closed", 0755);
  fs::create_symlink("../good", closed + "/link");
  EXPECT_EQ(trusted(closed + "/link", Kind::file).path, good);
  fs::create_symlink(good, open_folder + "/link");  // anybody may point it elsewhere
  EXPECT_THAT(problem(open_folder + "/link"), HasSubstr("written by others"));
  fs::create_symlink(open_folder, closed + "/folder");
  EXPECT_THAT(problem(closed + "/folder/link"), HasSubstr("written by others"));
  fs::create_symlink(closed, folder + "/straight");
  EXPECT_EQ(trusted(folder + "/straight/link", Kind::file).path, good);
  fs::create_symlink("loop", folder + "/loop");
  EXPECT_THAT(problem(folder + "/loop"), HasSubstr("links"));
}

TEST_F(TrustTest, SomebodyElsesIsNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = file("given", "", 0600);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THAT(problem(path), HasSubstr("does not belong to root"));
  const std::string theirs = folder_of("theirs", 0755);
  std::ofstream(theirs + "/it") << "";
  EXPECT_EQ(problem(theirs + "/it"), "");
  ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  EXPECT_THAT(problem(theirs + "/it"), HasSubstr("does not belong to root"));
  const std::string link = folder + "/link";  // in a folder with the sticky bit anybody may make one
  fs::create_symlink("/etc/passwd", link);
  ASSERT_EQ(lchown(link.c_str(), 65534, 65534), 0);
  EXPECT_THAT(problem(link), HasSubstr("does not belong to root"));
}

TEST_F(TrustTest, WhatIsNoFileIsRefused) {
  EXPECT_THAT(problem("relative/path"), HasSubstr("not an absolute path"));
  EXPECT_THAT(problem(""), HasSubstr("not an absolute path"));
  EXPECT_NE(problem("/"), "");
  EXPECT_NE(problem(folder), "");
  EXPECT_NE(problem(folder + "/."), "");
  EXPECT_NE(problem(folder + "/.."), "");
  EXPECT_THAT(problem("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(problem(folder + "/missing"), HasSubstr("No such file"));
  EXPECT_THAT(problem("/etc/passwd/below"), HasSubstr("not a directory"));
  EXPECT_THAT(problem("/etc/\n\033[31m"), testing::Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace ms::spank
