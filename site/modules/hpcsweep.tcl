#%Module1.0
# hpcsweep @VERSION@, for Environment Modules. Lmod takes the Lua twin of this file.
#
# The installation is found from the place of this file, links resolved, so that both can be moved
# together. Unloading leaves the environment as it was.

set version {@VERSION@}
set here    [file dirname [file dirname [file normalize [file join $ModulesCurrentModulefile _]]]]
set root    [file normalize [file join $here {@ROOT@}]]

module-whatis "hpcsweep $version: parameter sweeps on batch systems, one plan, native job arrays, one results tree"

proc ModulesHelp {} {
    puts stderr {hpcsweep @VERSION@ runs parameter sweeps on Slurm and PBS, or on this machine.

  hpcsweep plan PLAN.toml      what a plan will do; writes nothing
  hpcsweep submit PLAN.toml    hand it to the scheduler
  hpcsweep status              how far it is
  hpcsweep collect             one table of all results
  hpcsweep site show           the profile of this site
  hpcsweep doctor              check this installation

`man hpcsweep` tells the rest.}
}

conflict hpcsweep

prepend-path PATH [file join $root bin]
append-path PYTHONPATH [file join $root share hpcsweep python]

# Unset means a default that a value of ours would hide; man then finds our pages through PATH.
if {[info exists env(MANPATH)]} {
    prepend-path MANPATH [file join $root share/man]
}

# bash-completion and fish look here. Unset means these two folders, so they have to be named.
set share [file join $root share]
if {![info exists env(XDG_DATA_DIRS)] || $env(XDG_DATA_DIRS) in [list {} $share:/usr/local/share:/usr/share]} {
    append-path XDG_DATA_DIRS $share
    append-path XDG_DATA_DIRS /usr/local/share
    append-path XDG_DATA_DIRS /usr/share
} else {
    prepend-path XDG_DATA_DIRS $share
}

# zsh and fish read their lists of folders when they start; those that run are told.
if {[module-info mode load] || [module-info mode unload]} {
    set on     [module-info mode load]
    set quoted '[string map {' '\\''} $share]'
    switch -- [module-info shell] {
        zsh {
            if {$on} {
                puts stdout "fpath=($quoted/zsh/site-functions \$fpath);"
                puts stdout {if (( $+functions[compdef] )); then autoload -Uz _hpcsweep; compdef _hpcsweep hpcsweep; fi;}
            } else {
                puts stdout "fpath=(\"\${(@)fpath:#$quoted/zsh/site-functions}\");"
                puts stdout {if (( $+functions[compdef] )); then compdef -d hpcsweep; unset -f _hpcsweep 2>/dev/null; fi;}
            }
        }
        fish {
            set folder $quoted/fish/vendor_completions.d
            if {$on} {
                puts stdout "set -g fish_complete_path $folder \$fish_complete_path;"
            } else {
                puts stdout "set -g fish_complete_path (string match -v -- $folder \$fish_complete_path);"
                puts stdout {complete -e -c hpcsweep;}
            }
        }
    }
}
