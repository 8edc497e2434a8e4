// plugstack.conf as Slurm reads it, and our line in it.
#include "slurm/plugstack.h"

#include <gtest/gtest.h>

namespace ms::slurm {
namespace {

// "required /a.so x y", "include /b", one a line
std::string parsed(std::string_view text) {
  std::string all;
  for (const PlugstackLine& line : parse_plugstack(text)) {
    all += line.include.empty() ? (line.required ? "required " : "optional ") + line.path : "include " + line.include;
    for (const std::string& argument : line.arguments) all += ' ' + argument;
    all += '\n';
  }
  return all;
}

TEST(Plugstack, Lines) {
  struct Row {
    const char* text;
    const char* lines;
  };
  const std::vector<Row> rows = {
      {"", ""},
      {"\n \t\n# a comment\n  # another", ""},
      {"optional /a.so", "optional /a.so\n"},
      {"required /a.so x=1  y", "required /a.so x=1 y\n"},
      {"\toptional\t/a.so\tx=1\t", "optional /a.so x=1\n"},
      {"  required a.so # ours\noptional b.so", "required a.so\noptional b.so\n"},
      {"#optional /a.so", ""},
      {"include /etc/slurm/plugstack.d/*", "include /etc/slurm/plugstack.d/*\n"},
      {"include x.conf # theirs\nrequired a.so", "include x.conf\nrequired a.so\n"},
      // What Slurm refuses and goes on without.
      {"optional\nOPTIONAL /a.so\nsometimes /a.so\n/a.so\ninclude\nrequired /b.so", "required /b.so\n"},
  };
  for (const Row& row : rows) EXPECT_EQ(parsed(row.text), row.lines) << row.text;
}

TEST(Plugstack, OurPluginIsTheFirstOfItsName) {
  struct Row {
    const char* text;
    const char* path;
    const char* program;
    double deadline_s;
  };
  const std::vector<Row> rows = {
      {"optional /usr/lib/ms_spank.so config=/x", "/usr/lib/ms_spank.so", "", kPluginDeadline_s},
      {"optional ms_spank.so config=/x", "ms_spank.so", "", kPluginDeadline_s},
      {"optional /usr/lib/other.so deadline=3\nrequired /b/ms_spank.so deadline=12 program=/o/ms-diag\n"
       "optional /c/ms_spank.so",
       "/b/ms_spank.so", "/o/ms-diag", 12},
      {"optional /a/ms_spank.so deadline=12 deadline=7", "/a/ms_spank.so", "", 7},
      {"optional /a/ms_spank.so deadline=600", "/a/ms_spank.so", "", 600},
      // The plugin does nothing with these.
      {"optional /a/ms_spank.so deadline=601", "/a/ms_spank.so", "", 0},
      {"optional /a/ms_spank.so deadline=0", "/a/ms_spank.so", "", 0},
      {"optional /a/ms_spank.so deadline=7s", "/a/ms_spank.so", "", 0},
      {"optional /a/ms_spank.so deadline=-7", "/a/ms_spank.so", "", 0},
      {"optional /a/ms_spank.so deadline=", "/a/ms_spank.so", "", 0},
  };
  for (const Row& row : rows) {
    const auto plugin = our_plugin(parse_plugstack(row.text));
    ASSERT_TRUE(plugin) << row.text;
    EXPECT_EQ(plugin->path, row.path) << row.text;
    EXPECT_EQ(plugin->program, row.program) << row.text;
    EXPECT_EQ(plugin->deadline_s, row.deadline_s) << row.text;
  }
  EXPECT_TRUE(our_plugin(parse_plugstack("required /b/ms_spank.so"))->required);
  for (const char* other : {"", "optional /a/other.so", "optional /a/xms_spank.so", "optional /a/ms_spank.so.bak",
                            "#optional /a/ms_spank.so", "include /a/ms_spank.so"}) {
    EXPECT_FALSE(our_plugin(parse_plugstack(other))) << other;
  }
}

TEST(Plugstack, APathWithoutADirectoryIsInPluginDir) {
  const Config config = {{"PluginDir", "/usr/lib/slurm:/opt/slurm:odd"}};
  EXPECT_EQ(plugin_files("/a/ms_spank.so", config), (std::vector<std::string>{"/a/ms_spank.so"}));
  EXPECT_EQ(plugin_files("ms_spank.so", config),
            (std::vector<std::string>{"/usr/lib/slurm/ms_spank.so", "/opt/slurm/ms_spank.so"}));
  EXPECT_TRUE(plugin_files("ms_spank.so", {}).empty());
}

TEST(Plugstack, IsBesideSlurmConfUnlessNamed) {
  EXPECT_EQ(plugstack_path(parse_config("PlugStackConfig = (null)\nSLURM_CONF = /opt/slurm/slurm.conf\n")),
            "/opt/slurm/plugstack.conf");
  EXPECT_EQ(plugstack_path(parse_config("PlugStackConfig = /a/b.conf\nSLURM_CONF = /opt/slurm/slurm.conf\n")),
            "/a/b.conf");
  EXPECT_EQ(plugstack_path({}), "/etc/slurm/plugstack.conf");
}

}  // namespace
}  // namespace ms::slurm
