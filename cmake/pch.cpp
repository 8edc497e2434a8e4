// Compiled for its precompiled header alone (ms_precompile).
