-- hpcsweep @VERSION@, for Lmod.
--
-- The installation is found from the place of this file, links resolved, so that both can be moved
-- together. Unloading leaves the environment as it was.

local version = "@VERSION@"

-- The words of a shell: single quotes keep everything but themselves.
local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function resolved(path)
    return (subprocess("readlink -f -- " .. quoted(path)):gsub("\n$", ""))
end

local here = resolved(myFileName()):match("^(.*)/[^/]*$")
local root = [[@ROOT@]]
if root:sub(1, 1) ~= "/" then
    root = resolved(here .. "/" .. root)
end

whatis("Name: hpcsweep")
whatis("Version: " .. version)
whatis("Description: parameter sweeps on batch systems, one plan, native job arrays, one results tree")

help([[
hpcsweep @VERSION@ runs parameter sweeps on Slurm and PBS, or on this machine.

  hpcsweep plan PLAN.toml      what a plan will do; writes nothing
  hpcsweep submit PLAN.toml    hand it to the scheduler
  hpcsweep status              how far it is
  hpcsweep collect             one table of all results
  hpcsweep site show           the profile of this site
  hpcsweep doctor              check this installation

`man hpcsweep` tells the rest.
]])

conflict("hpcsweep")

prepend_path("PATH", pathJoin(root, "bin"))
append_path("PYTHONPATH", pathJoin(root, "share/hpcsweep/python"))

-- Unset means a default that a value of ours would hide; man then finds our pages through PATH.
if os.getenv("MANPATH") then
    prepend_path("MANPATH", pathJoin(root, "share/man"))
end

-- bash-completion and fish look here. Unset means these two folders, so they have to be named.
local share = pathJoin(root, "share")
local dirs = os.getenv("XDG_DATA_DIRS") or ""
if dirs == "" or dirs == share .. ":/usr/local/share:/usr/share" then
    append_path("XDG_DATA_DIRS", share)
    append_path("XDG_DATA_DIRS", "/usr/local/share")
    append_path("XDG_DATA_DIRS", "/usr/share")
else
    prepend_path("XDG_DATA_DIRS", share)
end

-- zsh and fish read their lists of folders when they start; those that run are told.
local shell = myShellName()
if shell == "zsh" then
    local folder = quoted(share .. "/zsh/site-functions")
    execute({
        cmd = "fpath=(" .. folder .. " $fpath); if (( $+functions[compdef] )); then "
            .. "autoload -Uz _hpcsweep; compdef _hpcsweep hpcsweep; fi",
        modeA = { "load" },
    })
    execute({
        cmd = 'fpath=("${(@)fpath:#' .. folder .. '}"); if (( $+functions[compdef] )); then '
            .. "compdef -d hpcsweep; unset -f _hpcsweep 2>/dev/null; fi",
        modeA = { "unload" },
    })
elseif shell == "fish" then
    local folder = quoted(share .. "/fish/vendor_completions.d")
    execute({ cmd = "set -g fish_complete_path " .. folder .. " $fish_complete_path", modeA = { "load" } })
    execute({
        cmd = "set -g fish_complete_path (string match -v -- " .. folder
            .. " $fish_complete_path); complete -e -c hpcsweep",
        modeA = { "unload" },
    })
end
