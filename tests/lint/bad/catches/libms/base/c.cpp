int fine();
