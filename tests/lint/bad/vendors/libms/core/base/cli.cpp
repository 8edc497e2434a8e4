#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>
#include <toml.hpp>
