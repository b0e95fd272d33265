"""What every part of rlctl uses and that uses no other part: errors, findings, secrets, names of files, text for terminals."""
