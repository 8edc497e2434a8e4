enum class ExitCode : int {
  done = 0,
  usage = 2,   // never retry
  bug = 70,
  stopped = 75,
};
inline constexpr std::array<ExitCodeRow, 3> kExitCodes{{
    {ExitCode::done, "done", "Done."},
    {ExitCode::usage, "misuse", "Usage."},
    {ExitCode::bug, "bug", "A bug."},
}};
